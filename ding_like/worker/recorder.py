"""Recorder of demonstrations: whole episodes of an actor, step by step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ding_like.data.demonstrations import STEP_COLUMNS
from ding_like.types import Actor, Array, EnvManager, Setting
from ding_like.worker.collector.loop import EpisodeQuota, RolloutLoop, step_until
from ding_like.worker.evaluator import watch


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
    env_manager.reset(seeds=[int(seed) for seed in rng.integers(0, 2**31 - 1, env_manager.num_lanes)])
    actor.reset()
    loop = RolloutLoop(env_manager, actor, rng=rng)
    quota = EpisodeQuota(n_episode, env_manager.num_lanes)
    for _ in watch(step_until(loop, quota, dict(setting or {})), loop, is_leaving):
        pass
    log = loop.rollout.columns()
    order = log["episode_id"].argsort(kind="stable")  # the log is in order of time
    columns = {
        name: column[order]
        for name, column in log.items()
        if name in STEP_COLUMNS or name.partition("/")[0] in ("obs", "next_obs")
    }
    columns["lane"] = np.zeros_like(columns["lane"])
    columns["episode_id"] = np.unique(columns["episode_id"], return_inverse=True)[1].astype(np.int64)
    return columns
