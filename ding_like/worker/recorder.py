"""Recorder of an actor's episodes, step by step: a number of whole ones, or a number of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ding_like.data.demonstrations import STEP_COLUMNS
from ding_like.types import Actor, Array, EnvManager, Setting
from ding_like.worker.collector.loop import EpisodeQuota, RolloutLoop, step_until
from ding_like.worker.evaluator import watch

_LOOK_STEPS = 256  # of the loop, between two looks whether there are enough


def play_demonstrations(
    env_manager: EnvManager,
    actor: Actor,
    n_episode: int,
    rng: np.random.Generator,
    *,
    setting: Setting | None = None,
    is_leaving: Callable[[], bool] = lambda: False,
) -> dict[str, Array]:
    """Reset all lanes with seeds from `rng`, play `n_episode` episodes, each lane its share, and return their steps.

    The columns [N] are those of `Demonstrations`: episodes one after another, in the order in which they began, with
    the observations that the actor saw and the true `next_obs`. An episode that breaks off is played again. `setting`
    goes to the actor. Raises ConfigError for fewer episodes than lanes, EvaluationStoppedError once `is_leaving`
    returns True.
    """
    loop = _begun(env_manager, actor, rng)
    quota = EpisodeQuota(n_episode, env_manager.num_lanes)
    for _ in watch(step_until(loop, quota, dict(setting or {})), loop, is_leaving):
        pass
    return _in_episodes(loop.rollout.columns())


def play_steps(
    env_manager: EnvManager,
    actor: Actor,
    num_steps: int,
    rng: np.random.Generator,
    *,
    setting: Setting | None = None,
    progress: Callable[[int], None] = lambda steps: None,
) -> dict[str, Array]:
    """Reset all lanes with seeds from `rng`, and return the first `num_steps` steps of their episodes.

    As `play_demonstrations`, but that the last episode is cut, `truncated`, where the number is reached. Episodes count
    in the order in which they began, so that long ones are not left out. `progress` gets the number of steps so far.
    """
    loop = _begun(env_manager, actor, rng)
    while True:
        for _ in range(_LOOK_STEPS):
            loop.step(dict(setting or {}))
        progress(min(num_steps, len(loop.rollout)))
        if len(loop.rollout) < num_steps:
            continue
        log = loop.rollout.columns()
        ended = log["episode_id"][log["terminated"] | log["truncated"]]
        is_open = ~np.isin(log["episode_id"], ended)
        # Behind the first episode that goes on, others would fill what it still lacks.
        first_open = log["episode_id"][is_open].min() if is_open.any() else np.iinfo(np.int64).max
        if np.count_nonzero(log["episode_id"] <= first_open) >= num_steps:
            return cut_after(_in_episodes(log), num_steps)


def cut_after(columns: Mapping[str, Array], num_steps: int) -> dict[str, Array]:
    """Return the first steps of episodes; the last of them ends its episode, `truncated` where it goes on."""
    columns = {name: column[:num_steps] for name, column in columns.items()}
    columns["truncated"] = columns["truncated"].copy()
    columns["truncated"][-1] |= not columns["terminated"][-1]
    return columns


def _begun(env_manager: EnvManager, actor: Actor, rng: np.random.Generator) -> RolloutLoop:
    env_manager.reset(seeds=[int(seed) for seed in rng.integers(0, 2**31 - 1, env_manager.num_lanes)])
    actor.reset()
    return RolloutLoop(env_manager, actor, rng=rng)


def _in_episodes(log: Mapping[str, Array]) -> dict[str, Array]:
    """Return the steps of a log, which is in order of time, episode after episode."""
    order = log["episode_id"].argsort(kind="stable")
    columns = {
        name: column[order]
        for name, column in log.items()
        if name in STEP_COLUMNS or name.partition("/")[0] in ("obs", "next_obs")
    }
    columns["lane"] = np.zeros_like(columns["lane"])
    columns["episode_id"] = np.unique(columns["episode_id"], return_inverse=True)[1].astype(np.int64)
    return columns
