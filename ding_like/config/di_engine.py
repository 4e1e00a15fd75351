"""Defaults of DI-engine for keys that a config of it leaves out, and its policies that are not here.

`create_config.defaults = "di_engine"` (`--di-engine` on the command line) puts these defaults between ours and what the
user set. They are what `default_config()` of the classes of DI-engine 0.5.3 returns, printed by running them, unless
another source stands beside them; an env class has its own, `di_engine_defaults`. Left out is what means the same under
another name, and what `docs/di_engine_defaults.md` lists as not taken; that page is written from this file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ding_like.config.legacy import NOT_HERE, reason_of
from ding_like.config.tree import Tree, get_path, items, set_path
from ding_like.types import Config

SWITCH = "defaults"  # its key in create_config
CHOICES = ("ding_like", "di_engine")
IGNORE_MISSING = "ignore_missing"  # key of create_config: train the policy that a file of a missing method names

_ABSENT = object()


class Default(NamedTuple):
    """One default of DI-engine."""

    value: Any  # of any plain type
    source: str = "default_config()"
    # Other keys of the same meaning: where a config sets one, this default does not hold.
    unless: tuple[str, ...] = ()


Defaults = Mapping[str, Default]

_ADVANCED: Defaults = {
    "policy.other.replay_buffer.type": Default("advanced", "the buffer that it makes where create_config names none")
}
_SAC: Defaults = {
    **_ADVANCED,
    "policy.learn.update_per_collect": Default(1),
    "policy.collect.n_sample": Default(1),
    "policy.other.replay_buffer.replay_buffer_size": Default(1_000_000),
}
_DDPG: Defaults = {
    **_ADVANCED,
    "policy.random_collect_size": Default(25_000),
    "policy.learn.update_per_collect": Default(1),
}

# Type of a policy -> path in main_config -> its default.
POLICY_DEFAULTS: Mapping[str, Defaults] = {
    **dict.fromkeys(("dqn", "c51", "qrdqn", "iqn", "fqf"), _ADVANCED),
    "rainbow": {
        **_ADVANCED,
        "policy.discount_factor": Default(0.99, unless=("policy.learn.discount_factor",)),
        "policy.learn.update_per_collect": Default(1),
        "policy.learn.batch_size": Default(32),
        "policy.other.replay_buffer.replay_buffer_size": Default(100_000),
    },
    "r2d2": {**_ADVANCED, "policy.collect.n_sample": Default(32)},
    "discrete_sac": _SAC,
    "sac": _SAC,
    "ddpg": _DDPG,
    "td3": {
        **_DDPG,
        "policy.learn.target_update_freq": Default(
            1, "a TD3Policy that was run: its targets move in every update, its actor in every second one"
        ),
    },
    "pdqn": {
        **_ADVANCED,
        "policy.discount_factor": Default(0.97, unless=("policy.learn.discount_factor",)),
        "policy.learn.update_per_collect": Default(3),
        "policy.learn.batch_size": Default(64),
        "policy.other.eps.start": Default(0.95),
        "policy.other.eps.end": Default(0.1),
        "policy.other.replay_buffer.replay_buffer_size": Default(10_000),
    },
    "ppo": {"policy.recompute_adv": Default(True), "policy.learn.value_norm": Default(True)},
    "ppo_offpolicy": {
        **_ADVANCED,
        "policy.learn.learning_rate": Default(1e-3),
        "policy.learn.entropy_weight": Default(0.01),
        "policy.learn.adv_norm": Default(False),
        "policy.learn.value_norm": Default(True),
        "policy.other.replay_buffer.replay_buffer_size": Default(10_000),
    },
    "a2c": {
        "policy.collect.discount_factor": Default(
            0.9, unless=("policy.discount_factor", "policy.learn.discount_factor")
        ),
        "policy.learn.batch_size": Default(64),
        "policy.learn.adam_eps": Default(1e-8, unless=("policy.learn.eps", "policy.learn.optimizer.eps")),
    },
    "pg": {
        "policy.learn.grad_clip_value": Default(5.0, unless=("policy.learn.grad_norm", "policy.learn.grad_clip_norm"))
    },
    "ppg": {
        "policy.learn.learning_rate": Default(1e-3),
        "policy.learn.entropy_weight": Default(0.01),
        "policy.learn.adv_norm": Default(False),
        "policy.learn.aux_freq": Default(8),
        "policy.learn.grad_clip_value": Default(10.0, unless=("policy.learn.grad_norm", "policy.learn.grad_clip_norm")),
    },
    "impala": {
        **_ADVANCED,
        "policy.learn.grad_clip_value": Default(
            None,
            "default_config(), whose learn.grad_clip_type is None",
            unless=("policy.learn.grad_clip_type", "policy.learn.clip_value", "policy.learn.grad_clip_norm"),
        ),
        "policy.other.replay_buffer.max_use": Default(16),
    },
    "qmix": {
        **_ADVANCED,
        "policy.double": Default(False, unless=("policy.learn.double_q",)),
        "policy.learn.update_per_collect": Default(20),
        "policy.learn.batch_size": Default(32),
        "policy.learn.grad_clip_norm": Default(100.0, unless=("policy.learn.clip_value", "policy.learn.grad_norm")),
        "policy.learn.target_theta": Default(
            0.008, unless=("policy.learn.target_update_theta", "policy.learn.target_update_freq")
        ),
        "policy.other.eps.start": Default(1.0),
        "policy.other.eps.end": Default(0.05),
        "policy.other.eps.decay": Default(50_000),
        "policy.other.replay_buffer.replay_buffer_size": Default(5_000),
    },
}

# Policies that read learn.discount_factor there, where a config has policy.discount_factor too.
_GAMMA_IN_LEARN = ("ddpg", "td3", "sac", "discrete_sac", "qmix")

# Policies that come closest -> policies of DI-engine that are not here.
_CLOSEST: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("impala", "ppo_offpolicy"): ("acer",),
    ("qmix", "ppo"): ("atoc", "coma"),
    ("dqn", "qrdqn"): ("averaged_dqn",),
    ("pg", "ppo"): ("bc", "il"),
    ("td3", "sac"): ("bcq",),
    ("dqn", "sac"): ("bdq",),
    ("qmix",): ("collaq", "qtran", "wqmix"),
    ("sac", "td3"): ("continuous_bc", "edac", "ibc", "pd", "qgpo"),
    ("sac",): ("cql", "iql", "mbsac", "sqil_sac"),
    ("qrdqn", "discrete_sac"): ("cql_discrete", "discrete_cql"),
    ("td3", "ddpg"): ("d4pg",),
    ("dqn", "rainbow"): ("dqfd",),
    ("dqn",): ("dqn_stdim", "pc_bfs", "stdim"),
    ("ppo_recurrent", "sac"): ("dreamer",),
    ("ppo", "ppo_recurrent"): ("dt",),
    ("r2d2", "ppo_recurrent"): ("gtrxl_discrete",),
    ("ppo", "qmix"): ("happo",),
    ("qmix", "dqn"): ("madqn",),
    ("dqn", "discrete_sac"): ("mdqn", "sql"),
    ("r2d2", "rainbow"): ("ngu",),
    ("ppg",): ("ppg_offpolicy",),
    ("ppo", "pg"): ("ppo_pg",),
    ("ppo",): ("ppo_stdim", "ppof", "trex"),
    ("r2d2",): ("r2d2_collect_traj", "r2d3"),
    ("r2d2", "drqn"): ("r2d2_gtrxl",),
    ("discrete_sac", "dqn"): ("sqn",),
    ("td3",): ("td3_bc", "td3_vae"),
}
CLOSEST_POLICIES = dict(sorted((name, closest) for closest, names in _CLOSEST.items() for name in names))

# What their files call, where it is no comment.
_ENTRY = re.compile(r"^[^#\n]*\b(serial_pipeline_\w+|collect_\w*demo_data\w*)\(", re.MULTILINE)
# What follows "serial_pipeline_" in the entry function of a method that is not here, or a word of its files' names ->
# the method. The first that fits counts.
MISSING_METHODS: Mapping[str, str] = {
    "bco": "behavioural cloning from observations (BCO)",
    "bc": "behavioural cloning (BC)",
    "dqfd": "DQfD, learning from demonstrations",
    "dreamer": "Dreamer, a world model",
    "dream": "a world model",
    "gail": "GAIL, imitation of an expert",
    "guided_cost": "guided cost learning, imitation of an expert",
    "icm": "ICM, an exploration reward",
    "mbpo": "MBPO, a world model",
    "mbrl": "a world model",
    "ngu": "NGU, exploration rewards",
    "offline": "offline learning from a data set",
    "plr": "prioritised level replay (PLR)",
    "preference_based_irl": "a reward model that learns from preferences (T-REX, D-REX)",
    "drex": "D-REX, a reward model that learns from preferences",
    "pwil": "PWIL, imitation of an expert",
    "r2d3": "R2D3, learning from demonstrations",
    "reward_model": "a reward model (RND, ICM, PWIL, ...)",
    "rnd": "RND, an exploration reward",
    "sqil": "SQIL, imitation of an expert",
    "td3_vae": "TD3 on actions of an auto-encoder",
    "trex": "T-REX, a reward model that learns from preferences",
}
_EXPERT = "learning from an expert (SQIL, GAIL, DQfD, ...)"
# Keys that only such methods have: their run has an expert or a data set beside the env.
_KEYS_OF_METHODS: Mapping[str, str] = {
    "policy.collect.model_path": _EXPERT,
    "policy.collect.expert_data_path": _EXPERT,
    "policy.collect.demonstration_info_path": _EXPERT,
    "policy.expert_random_collect_size": _EXPERT,
    "policy.collect.data_path": MISSING_METHODS["offline"],
}


def switch_fault(create: Config) -> str | None:
    """Return what is wrong with the switch of a create_config, or None."""
    chosen = create.get(SWITCH, CHOICES[0])
    if chosen in CHOICES:
        return None
    close = difflib.get_close_matches(str(chosen), CHOICES, n=1, cutoff=0.4)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"is {chosen!r}, expected one of {', '.join(map(repr, CHOICES))}{hint}"


def is_switched(create: Config) -> bool:
    """Return whether a create_config asks for the defaults of DI-engine."""
    return create.get(SWITCH) == CHOICES[1]


def is_di_engine(create: Config) -> bool:
    """Return whether a config is DI-engine's: the switch is set, or its import_names are of `ding` or `dizoo`."""
    return is_switched(create) or any(_names_its_modules(section) for _, section in items(create))


def _names_its_modules(section: Any) -> bool:  # Any: what a user wrote
    names = section.get("import_names") if isinstance(section, Mapping) else None
    names = [names] if isinstance(names, str) else names
    return isinstance(names, (list, tuple)) and any(str(name).split(".")[0] in ("ding", "dizoo") for name in names)


def set_defaults(defaults: Tree, found: Defaults, user: Config) -> None:
    """Put DI-engine's defaults into ours, except those that `user` sets by another key."""
    for path, default in found.items():
        if all(get_path(user, place, _ABSENT) is _ABSENT for place in default.unless):
            set_path(defaults, path, default.value)


def read_place(path: str, policy: str | None) -> bool:
    """Return whether DI-engine's policy reads its own name of a key, `path`, where a config has ours as well."""
    return path == "policy.learn.discount_factor" and policy in _GAMMA_IN_LEARN


def missing(part: str, name: object) -> str | None:
    """Return what to use in place of a class that only DI-engine has, or None for an unknown name."""
    if part == "reward_model":
        return reason_of(NOT_HERE, "reward_model")
    if part != "policy":
        return None
    stem = name.removesuffix("_command") if isinstance(name, str) else ""
    closest = CLOSEST_POLICIES.get(stem)
    if closest is None:
        return None
    return f"DI-engine's policy '{stem}' is not here; closest are {' and '.join(repr(each) for each in closest)}"


def missing_method(main: Config, create: Config, source: str) -> str | None:
    """Return which method of DI-engine a config is of and how that shows, if the method is not here; else None.

    The function that the file `source` calls counts first, then keys of `main`, then the file's name.
    """
    text = Path(source).read_text(encoding="utf-8", errors="replace") if Path(source).is_file() else ""
    for name in _ENTRY.findall(text):
        for start, method in MISSING_METHODS.items():
            if name.startswith(f"serial_pipeline_{start}"):
                return f"{method}, as it calls {name}"
        if "demo_data" in name:
            return None  # data that others learn from are collected by any policy
    for path, method in _KEYS_OF_METHODS.items():
        if get_path(main, path):
            return f"{method}, as it has {path}"
    words = Path(source).stem.split("_") if is_di_engine(create) else ()
    return next((f"{MISSING_METHODS[word]}, as its name says" for word in words if word in MISSING_METHODS), None)


def drop_missing(main: Tree, create: Tree) -> dict[str, str]:
    """Take the sections of methods that are not here out of both configs; return why, by their paths in `main`."""
    reasons = {name: reason_of(NOT_HERE, name) for name in {**main, **create}}
    for name in (dropped := {name: reason for name, reason in reasons.items() if reason is not None}):
        main.pop(name, None)
        create.pop(name, None)
    return dropped
