"""Ranked demonstrations: episodes of several checkpoints (T-REX), or of one with more or less noise (D-REX)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ding_like.data.demonstrations import Demonstrations
from ding_like.data.rows import adapt_collect_mode, adapt_eval_mode
from ding_like.entry.training import InputConfig, load_config
from ding_like.errors import ConfigError
from ding_like.pipeline.envs import build_eval_env, build_policy, fit_policy_config
from ding_like.pipeline.process import training_process
from ding_like.pipeline.statistics import load_agent
from ding_like.policy.dagger import MixedActor
from ding_like.policy.di_engine_view import RandomActor
from ding_like.types import Array, EnvManager, Json
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.seeding import make_rng
from ding_like.worker.recorder import play_demonstrations

logger = logging.getLogger(__name__)


@shown_as_by_the_command()
def collect_ranked(
    input_cfg: InputConfig,
    checkpoints: Sequence[str | Path],
    path: str | Path,
    *,
    n_episode: int = 20,
    explores: bool = False,
    seed: int = 0,
    overrides: Sequence[str] = (),
) -> Demonstrations:
    """Write episodes of several checkpoints, from the worst to the best, to one file whose column `rank` orders them.

    The checkpoints are of one config, `total_config.py` of their run say; each plays `n_episode` episodes, with
    `explores` by the actor that collects, whose actions of a stochastic policy are drawn. Raises ConfigError for fewer
    than two.
    """
    if len(checkpoints) < 2:
        raise ConfigError(f"collect_ranked got {len(checkpoints)} checkpoints; give two or more, from worst to best.")
    parts = []
    with _player(input_cfg, seed, overrides, mode="collect" if explores else "eval") as (manager, mode):
        for rank, checkpoint in enumerate(checkpoints):
            _load(manager, mode, checkpoint)
            columns = play_demonstrations(manager, mode.actor, n_episode, make_rng(seed, "ranked", str(rank)))
            parts.append({**columns, "rank": np.full(len(columns["action"]), rank, np.int64)})
    return _write(parts, path, {"checkpoints": [str(each) for each in checkpoints], "seed": seed})


@shown_as_by_the_command()
def collect_noisy(
    input_cfg: InputConfig,
    checkpoint: str | Path,
    path: str | Path,
    *,
    noises: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    n_episode: int = 20,
    seed: int = 0,
    overrides: Sequence[str] = (),
) -> Demonstrations:
    """Write episodes of one checkpoint, `n_episode` with each share of random actions, to a file with a column `noise`.

    Raises ConfigError for fewer than two different shares, and for one that is not from 0 to 1.
    """
    if len(set(noises)) < 2 or not all(0 <= each <= 1 for each in noises):
        raise ConfigError(f"noises are {list(noises)}; give two different numbers or more, each from 0 to 1.")
    parts = []
    with _player(input_cfg, seed, overrides) as (manager, mode):
        _load(manager, mode, checkpoint)
        actor = MixedActor(mode.actor, RandomActor(manager.action_space))
        for place, noise in enumerate(noises):
            rng = make_rng(seed, "noisy", str(place))
            columns = play_demonstrations(manager, actor, n_episode, rng, setting={"beta": noise})
            parts.append({**columns, "noise": np.full(len(columns["action"]), noise, np.float32)})
    return _write(parts, path, {"checkpoints": [str(checkpoint)], "seed": seed})


@contextmanager
def _player(
    input_cfg: InputConfig, seed: int, overrides: Sequence[str], *, mode: Literal["collect", "eval"] = "eval"
) -> Iterator[tuple[EnvManager, Any]]:
    cfg = load_config(input_cfg, seed=seed, overrides=overrides, save=False, renew_dir=False)
    if "obs_norm" in [each if isinstance(each, str) else each.get("type") for each in cfg.env.get("wrappers") or ()]:
        raise ConfigError(
            "env.wrappers has obs_norm, and so each checkpoint observes other numbers, of which no reward can be "
            "learned: train the checkpoints without it."
        )
    with training_process(), closing(build_eval_env(cfg, seed=seed)) as manager:
        policy = build_policy(fit_policy_config(cfg.policy, manager), seed=seed, modes=[mode])
        is_eval = mode == "eval"
        yield manager, adapt_eval_mode(policy.eval_mode) if is_eval else adapt_collect_mode(policy.collect_mode)


def _load(manager: EnvManager, mode: Any, checkpoint: str | Path) -> None:
    if any(statistics := load_agent(mode, str(checkpoint))):
        manager.adopt_wrapper_states(statistics)


def _write(parts: Sequence[dict[str, Array]], path: str | Path, info: dict[str, Json]) -> Demonstrations:
    before = np.cumsum([0, *(part["episode_id"].max() + 1 for part in parts)])
    for part, first in zip(parts, before, strict=False):
        part["episode_id"] = part["episode_id"] + first
    found = Demonstrations({name: np.concatenate([each[name] for each in parts]) for name in parts[0]}, info, str(path))
    found.save(path)
    returns = np.split(found.returns, before[1:-1])
    logger.info("wrote %d episodes to %s: %s", found.num_episodes, path, [f"{each.mean():.4g}" for each in returns])
    return found
