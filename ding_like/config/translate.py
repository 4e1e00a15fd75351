"""Read what DI-engine writes in another form: episodes of each env, `lr_scheduler`, and hindsight replay."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from ding_like.config.report import Fault, suggestion
from ding_like.config.schema import Schema
from ding_like.config.tree import Tree, get_path, set_path

_PER_ENV = "env.evaluator_episode_num"
_TOTAL = "env.n_evaluator_episode"
_SCHEDULER = "policy.learn.lr_scheduler"
_SCHEDULE = "policy.learn.schedule"


def translate(main: Tree, schema: Schema) -> None:
    """Change a main_config to our keys, in place; what has another form than DI-engine's stays as it is."""
    each = get_path(main, _PER_ENV)
    envs = get_path(main, "env.evaluator_env_num", get_path(schema.defaults, "env.evaluator_env_num"))
    if type(each) is type(envs) is int and get_path(main, _TOTAL) is None and not schema.knows(_PER_ENV):
        del main["env"]["evaluator_episode_num"]
        set_path(main, _TOTAL, each * envs)
    learn = get_path(main, "policy.learn")
    has_schedule = schema.knows(f"{_SCHEDULE}.env_steps") and not schema.knows(_SCHEDULER)
    if has_schedule and isinstance(learn, dict) and "lr_scheduler" in learn:
        _read_schedule(main, learn, schema)


def _read_schedule(main: Tree, learn: Tree, schema: Schema) -> None:
    """Change `learn.lr_scheduler` to `learn.schedule`.

    There the learning rate goes in a straight line to `min_lr_lambda` times its first value, in `epoch_num` train
    calls, each on what was collected for it; ours counts the env steps. What has another form stays where it is, and
    is an unknown key.
    """
    given = learn["lr_scheduler"]
    if given is None:
        del learn["lr_scheduler"]
    elif isinstance(given, Mapping) and set(given) == {"epoch_num", "min_lr_lambda"}:
        rate, n_sample = (
            get_path(main, path, get_path(schema.defaults, path))
            for path in ("policy.learn.learning_rate", "policy.collect.n_sample")
        )
        if all(isinstance(number, (int, float)) for number in (*given.values(), rate, n_sample)):
            del learn["lr_scheduler"]
            set_path(main, f"{_SCHEDULE}.env_steps", int(given["epoch_num"] * n_sample))
            set_path(main, f"{_SCHEDULE}.lr_end", given["min_lr_lambda"] * rate)


# ---- hindsight replay

_logger = logging.getLogger(__name__)

_SECTION = "policy.other.her"
_BUFFER = "policy.other.replay_buffer"
_KEYS = ("her_strategy", "her_replay_k", "episode_size", "sample_per_episode")
# Buffers that a config of DI-engine's names beside `her`, and ours.
_BUFFERS = ("episode", "naive", "deque", "her")


def read_her(main: Tree, create: Tree, *, quiet: bool) -> Iterator[Fault]:
    """Change a config in DI-engine's form to ours, in place, and log the changes in one INFO line unless it is `quiet`.

    | DI-engine                                           | here                                              |
    |-----------------------------------------------------|---------------------------------------------------|
    | `create_config.replay_buffer.type='episode'`        | 'her', with `size_unit='episodes'`                |
    | `her.her_strategy`, `her.her_replay_k` (1)          | `replay_buffer.strategy`, `replay_buffer.k`       |
    | `her.episode_size * her.sample_per_episode`         | `policy.learn.batch_size`                         |

    Yields what is wrong with the section.
    """
    her, kind = get_path(main, _SECTION), _type_of("replay_buffer", _BUFFER, main, create)
    plays_episodes = _type_of("collector", "policy.collect.collector", main, create) == "episode"
    if her is None:
        if kind == "episode" and plays_episodes:  # DI-engine's policies cut the episodes of a sample themselves
            set_path(main, "policy.collect.collector.get_train_sample", True)
        return
    faults = list(_faults(her, kind))
    if faults:
        yield from faults
        return
    main["policy"]["other"].pop("her")
    create["replay_buffer"] = {"type": "her"}
    get_path(main, _BUFFER, {}).pop("type", None)
    if plays_episodes:
        set_path(main, "policy.collect.collector.get_train_sample", True)
    settings = {f"{_BUFFER}.k": her.get("her_replay_k", 1)}
    if "her_strategy" in her:
        settings[f"{_BUFFER}.strategy"] = her["her_strategy"]
    if kind == "episode":
        settings[f"{_BUFFER}.size_unit"] = "episodes"
    episodes, rows = her.get("episode_size"), her.get("sample_per_episode")
    if episodes is not None and rows is not None:
        settings["policy.learn.batch_size"] = episodes * rows
    for path, value in settings.items():
        set_path(main, path, value)
    if not quiet:
        listed = ", ".join(f"{path}={value!r}" for path, value in settings.items())
        _logger.info("read as create_config.replay_buffer.type='her' (docs/algorithms/her.md): %s", listed)


def _faults(her: Any, kind: str | None) -> Iterator[Fault]:  # Any: what a user wrote
    if not isinstance(her, Mapping):
        yield Fault(_SECTION, f"expected a section, dict(her_strategy=..., ...), got {her!r}")
        return
    for key in her:
        if key not in _KEYS:
            yield Fault(f"{_SECTION}.{key}", f"unknown key; {suggestion(str(key), dict.fromkeys(_KEYS), {})}")
    for key in ("episode_size", "sample_per_episode"):
        value = her.get(key)
        if value is not None and (not isinstance(value, int) or value < 1):
            yield Fault(f"{_SECTION}.{key}", f"is {value!r}, expected a whole number from 1, or None")
    if kind not in (None, *_BUFFERS):
        yield Fault(_SECTION, f"goes with a buffer of type 'episode' or 'her', not {kind!r}: leave the section out")


def _type_of(part: str, path: str, main: Tree, create: Tree) -> Any:
    """Return the type that a config names for a part; None where it names none."""
    section = create.get(part)
    named = section.get("type") if isinstance(section, Mapping) else None
    return get_path(main, f"{path}.type") if named is None else named
