"""Show an array manager as DI-engine's manager: dicts by env id."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding_like.data.obs import copy_obs
from ding_like.envs.di_engine_style import BaseEnvTimestep
from ding_like.envs.manager.array_manager import ArrayEnvManager
from ding_like.envs.spaces import Space
from ding_like.errors import EnvError
from ding_like.types import Array, Obs, StepBatch

ResetParam = Mapping[int, Mapping[str, Any] | None]  # parameters are an env's own matter

_NOTHING = np.zeros(0, np.int64)


class DiEngineEnvManager:
    """Offer `ready_obs`, `step({id: action})` and `done` over any array manager, for code in DI-engine's style.

    An env takes part in `episode_num` episodes, then it is done. A timestep's `obs` is the true next observation, its
    reward an array [1]; at an episode's end `info["eval_episode_return"]` holds the sum of rewards, unless the env says
    it itself. A timestep with `info["abnormal"]` says that the env broke and its episode is void.
    """

    def __init__(self, manager: ArrayEnvManager, *, episode_num: float = math.inf) -> None:
        self._made: ArrayEnvManager | None = manager
        self._clear(manager.num_lanes, episode_num)

    def _clear(self, env_num: int, episode_num: float) -> None:
        self._episode_num = episode_num
        self._finished = np.zeros(env_num, np.int64)
        self._return = np.zeros(env_num)
        self._seeds: dict[int, int] = {}  # for the next reset of these envs

    @property
    def _manager(self) -> ArrayEnvManager:
        assert self._made is not None, "the constructor was given one"
        return self._made

    @property
    def manager(self) -> ArrayEnvManager:
        return self._manager

    @property
    def array_manager(self) -> ArrayEnvManager:
        """Return what collectors and evaluators step."""
        return self._manager

    @property
    def env_num(self) -> int:
        return len(self._return)

    @property
    def observation_space(self) -> Space:
        return self._manager.observation_space

    @property
    def action_space(self) -> Space:
        return self._manager.action_space

    @property
    def closed(self) -> bool:
        return self._made is not None and self._made.closed

    @property
    def done(self) -> bool:
        """Tell whether every env has had its episodes."""
        return bool((self._finished >= self._episode_num).all())

    @property
    def ready_obs(self) -> dict[int, Any]:
        """Return {env id: observation} of the envs that wait for an action; empty when `done`."""
        if self.done:
            return {}
        waiting = self._waiting()
        while not len(waiting):
            # Nobody can be asked yet, in a dummy autoreset step for instance: let the envs go on.
            self._manager.step(_NOTHING, _NOTHING)
            waiting = self._waiting()
        obs = copy_obs(self._manager.obs)
        return {int(lane): _row(obs, lane) for lane in waiting}

    def _waiting(self) -> Array:
        return np.flatnonzero(self._manager.ready & (self._finished < self._episode_num))

    def step(self, actions: Mapping[int, Any]) -> dict[int, BaseEnvTimestep]:
        """Step the envs in `actions`, which must be among `ready_obs`."""
        over = [index for index in actions if self._finished[index] >= self._episode_num]
        if over:
            raise EnvError(f"envs {over} have had their {self._episode_num} episodes; step only envs of ready_obs.")
        lanes = np.array(sorted(actions), np.int64)
        space = self._manager.action_space
        stacked = [np.asarray(actions[int(lane)], space.dtype).reshape(space.shape or ()) for lane in lanes]
        return self._timesteps(self._manager.step(lanes, np.array(stacked)))

    def _timesteps(self, batch: StepBatch) -> dict[int, BaseEnvTimestep]:
        timesteps: dict[int, BaseEnvTimestep] = {}
        for row, lane in enumerate(batch.lanes.tolist()):
            info = dict(batch.info.get(lane, {}))
            self._return[lane] += batch.reward[row]
            is_done = bool(batch.terminated[row] or batch.truncated[row])
            if is_done:
                info.setdefault("eval_episode_return", float(self._return[lane]))
                info.setdefault("TimeLimit.truncated", bool(batch.truncated[row] and not batch.terminated[row]))
                self._finished[lane] += 1
                self._return[lane] = 0.0
            obs = _row(batch.next_obs, row)
            timesteps[lane] = BaseEnvTimestep(obs, batch.reward[row : row + 1].copy(), is_done, info)
        current = copy_obs(self._manager.obs) if len(batch.dropped) else {}
        for lane in batch.dropped.tolist():
            self._return[lane] = 0.0
            nothing = np.zeros(1, np.float32)
            timesteps[lane] = BaseEnvTimestep(_row(current, lane), nothing, False, {"abnormal": True})
        return timesteps

    def launch(self, reset_param: ResetParam | None = None) -> None:
        """Reset every env for the first time."""
        self.reset(reset_param)

    def reset(self, reset_param: ResetParam | None = None) -> None:
        """Begin new episodes: in all envs, which get their full number again, or in those that `reset_param` names.

        A value is None or a dict: its `seed` seeds this reset, the rest are parameters of this and every later one.
        """
        param = {index: dict(own or {}) for index, own in (reset_param or {}).items()}
        if not param:
            self._finished[:] = 0
        chosen = sorted(param) or list(range(self.env_num))
        self._return[chosen] = 0.0
        seeds = {**self._seeds, **{index: own.pop("seed") for index, own in param.items() if "seed" in own}}
        self._seeds = {index: seed for index, seed in self._seeds.items() if index not in chosen}
        options = {index: own for index, own in param.items() if own}
        seeded = [index for index in chosen if index in seeds]
        others = [index for index in chosen if index not in seeds]
        if seeded:
            self._manager.reset(np.array(seeded), seeds=[seeds[index] for index in seeded], options=options)
        if others:
            self._manager.reset(np.array(others), options=options)

    def seed(self, seed: int | Sequence[int] | Mapping[int, int], dynamic_seed: bool | None = None) -> None:
        """Seed the next resets: env i from `seed + i`, or from its own number of a list or dict."""
        is_dynamic = dynamic_seed is not False
        if isinstance(seed, int):
            self._seeds = {}
            self._seed_all(seed, is_dynamic)
            return
        self._seeds = dict(seed) if isinstance(seed, Mapping) else dict(enumerate(seed))
        if not set(self._seeds) <= set(range(self.env_num)):
            raise EnvError(f"seeds are for envs {sorted(self._seeds)}; this manager has envs 0 to {self.env_num - 1}.")
        self._seed_all(next(iter(self._seeds.values())), is_dynamic)

    def _seed_all(self, seed: int, is_dynamic: bool) -> None:
        self._manager.seed(seed, is_dynamic)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


def _row(obs: Obs, row: int) -> Any:
    if isinstance(obs, dict):
        return {key: array[row] for key, array in obs.items()}
    return obs[row]
