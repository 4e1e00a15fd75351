"""Train in two lines: `run = ding_like.train("dqn", "CartPole-v1", env_step=20_000)`."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ding_like.entry.plan import NO_LIMIT, Plan, RunArguments, checked_limit, load_config, refuse_in_child
from ding_like.entry.run import Run
from ding_like.entry.serial_entry import train_planned
from ding_like.entry.train_config import (
    GivenEnv,
    TrainConfig,
    config_of_file,
    config_of_names,
    name_of_run,
    overrides_of,
    settings_of,
)
from ding_like.errors import ConfigError
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.run_folder import RunFolder

logger = logging.getLogger(__name__)

_ENV_STEPS = 100_000
# What other libraries and our own pipelines call the limit.
_MEANT = dict.fromkeys(["total_timesteps", "timesteps", "max_env_step", "steps"], "env_step")

__all__ = ["Run", "train"]


@shown_as_by_the_command()
def train(
    policy_name: str | None = None,
    environment: GivenEnv | None = None,
    /,
    *,
    env_step: float | None = None,
    train_iter: float | None = None,
    policy: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    config: str | Path | None = None,
    seed: int = 0,
    stop_value: float | None = None,
    exp_name: str | None = None,
    import_names: str | Sequence[str] = (),
    **unknown: NoReturn,
) -> Run:
    """Train a policy in an env, as `ding -m serial` or `serial_onpolicy` does of the same config, and return the run.

    `environment` is a gymnasium id, "module:Class", a class, or a function without arguments. Where a config of this
    policy and env comes with the package it is the base, else defaults; `config` is a file in place of both. `policy`
    and `env` are sections of settings, `overrides` a dict by path ({"policy.learn.batch_size": 128}) or texts as on
    the command line. Without a limit a run ends after 100,000 env steps, or when an evaluation reaches `stop_value`.
    `import_names` are modules that register what is your own.

    A run that is interrupted by Ctrl-C saves a point and raises KeyboardInterrupt; `Run(FOLDER).resume()` goes on.
    Raises ConfigError with every fault of the config at once.
    """
    refuse_in_child()
    if unknown:
        _refuse(unknown)
    names = [import_names] if isinstance(import_names, str) else list(import_names)
    built = _config(policy_name, environment, config, names, env)
    built = settings_of(built, policy, env)
    if stop_value is not None:
        built = settings_of(built, None, {"stop_value": stop_value})
    if exp_name is None and config is None:
        assert policy_name is not None and environment is not None, "_config saw to it"
        exp_name = name_of_run(policy_name, environment, seed)
    if env_step is None and train_iter is None:
        env_step = _ENV_STEPS
    asked, limits = overrides_of(overrides), (_limit("train_iter", train_iter), _limit("env_step", env_step))
    with RunFolder() as folder:
        cfg = load_config((built.main, built.create), seed=seed, overrides=asked, exp_name=exp_name, folder=folder)
        mode = "serial_onpolicy" if cfg.policy.on_policy else "serial"
        arguments = RunArguments(mode, seed, *limits)
        train_planned(Plan(cfg, arguments, None, overrides=asked), on_begin=folder.keep)
    return Run(cfg.exp_name)


def _refuse(unknown: Mapping[str, Any]) -> None:
    """Raise ConfigError with every keyword argument that `train` does not take, and the one that may be meant."""
    takes = [name for name, each in inspect.signature(train).parameters.items() if each.kind is each.KEYWORD_ONLY]
    texts = []
    for name in unknown:
        close = [_MEANT[name]] if name in _MEANT else difflib.get_close_matches(name, takes, n=1, cutoff=0.75)
        texts.append(f"train() takes no argument {name!r}{f'; did you mean {close[0]}?' if close else ''}")
    raise ConfigError("\n".join([*texts, f"  It takes a policy and an env without names, then {', '.join(takes)}."]))


def _config(
    policy: str | None,
    env: GivenEnv | None,
    config: str | Path | None,
    import_names: list[str],
    settings: Mapping[str, Any] | None,
) -> TrainConfig:
    if config is not None:
        if policy is not None or env is not None:
            raise ConfigError("train() was given a config and the names of a policy or env too: give one of the two.")
        return config_of_file(config)
    if policy is None or env is None:
        raise ConfigError(
            "train() needs a policy and an env, such as train('dqn', 'CartPole-v1'), or a file: train(config='FILE')."
        )
    return config_of_names(policy, env, import_names, settings=settings)


def _limit(name: str, value: float | None) -> int:
    return NO_LIMIT if value is None else checked_limit(name, value)
