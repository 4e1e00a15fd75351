"""Normalise observations and rewards with running statistics that are saved with the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd

from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers.common import EpisodeReturn
from ding_like.errors import CheckpointError, ConfigError
from ding_like.types import Array, EnvAction, EnvObs, Info, State
from ding_like.utils.moments import Moments, Observer
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

_COUNT_AT_FIRST = 1e-4  # gymnasium's, of a mean of 0 and a variance of 1


# Gymnasium's own would lose their statistics when a run is resumed, so their names mean these.
ENV_WRAPPER_REGISTRY.alias("NormalizeObservation", "obs_norm")
ENV_WRAPPER_REGISTRY.alias("NormalizeReward", "reward_norm")


@ENV_WRAPPER_REGISTRY.register("obs_norm")
class ObsNorm(gymnasium.wrappers.NormalizeObservation[Any, Any, Any]):
    """Wrapper that normalises each number of an observation to mean 0 and variance 1, by running statistics.

    What is then beyond `clip` is cut: early on, with little known, a number can be far out.
    An observation with a NaN or an infinity passes unchanged and is not learned from: one of them would spoil the
    statistics for good, and the env manager has to see it. `update_running_mean = False` stops learning.
    Its state also has what it observed for a merge with others, and the merged statistics: see `_Observed`.
    """

    def __init__(self, env: AnyEnv, epsilon: float = 1e-8, *, clip: float = 10.0) -> None:
        if not isinstance(env.observation_space, gymnasium.spaces.Box):
            raise ConfigError(
                f"obs_norm takes Box observations, the env has {env.observation_space}; put dict(type="
                "'FlattenObservation') before it in env.wrappers."
            )
        super().__init__(env, epsilon)
        self.clip = clip
        # Gymnasium counts in float32, in which a mean stops changing after some ten million observations.
        self.obs_rms = RunningMeanStd(shape=env.observation_space.shape)  # type: ignore[no-untyped-call]
        self._observed = _Observed()

    def observation(self, observation: EnvObs) -> EnvObs:
        """Return the observation normalised, float32."""
        if not np.isfinite(observation).all():
            return np.float32(observation)
        if self._observed.is_on:
            self._observed.add(observation)
        return np.clip(super().observation(observation), -self.clip, self.clip)

    def state_dict(self) -> State:
        """Return the statistics."""
        return {**_state_of(self.obs_rms, is_frozen=not self.update_running_mean), **self._observed.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Load the statistics that `state_dict` returned."""
        if "mean" in state:
            _load(self.obs_rms, state)
            self.update_running_mean = not state["is_frozen"]
        self._observed.load_state_dict(state, shape=np.shape(self.obs_rms.mean))

    def adopt(self, states: Sequence[State]) -> None:
        """Use the joint statistics of several wrappers from now on and learn no more."""
        _load(self.obs_rms, _joined(states))
        self.update_running_mean = False


@ENV_WRAPPER_REGISTRY.register("reward_norm")
class RewardNorm(gymnasium.wrappers.NormalizeReward[Any, Any]):
    """Wrapper that divides rewards by the standard deviation of the discounted return, by running statistics.

    What is then beyond `clip` is cut: the first reward of a run would be 100 times the later ones.
    The discounted return starts from 0 with every episode, also after a truncation. `info["eval_episode_return"]`
    holds the sum of the env's own rewards at an episode's end, so reports and `stop_value` mean those. A reward that
    is not finite passes unchanged and is not learned from. Source: Engstrom et al. 2020, reward scaling.
    """

    def __init__(self, env: AnyEnv, gamma: float = 0.99, epsilon: float = 1e-8, *, clip: float = 10.0) -> None:
        super().__init__(EpisodeReturn(env), gamma, epsilon)
        self.clip = clip
        self._observed = _Observed()

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin an episode with a discounted return of 0."""
        self.discounted_reward = np.zeros(1)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        """Step the env and return the reward normalised."""
        obs, given, terminated, truncated, info = self.env.step(action)
        reward = float(given)
        if math.isfinite(reward):
            self.discounted_reward = self.discounted_reward * self.gamma + reward
            if self._observed.is_on:
                self._observed.add(self.discounted_reward[0])
            if self.update_running_mean:
                self.return_rms.update(self.discounted_reward)  # type: ignore[no-untyped-call]
            reward /= math.sqrt(float(self.return_rms.var) + self.epsilon)
            reward = min(max(reward, -self.clip), self.clip)
        return obs, reward, terminated, truncated, info

    def state_dict(self) -> State:
        """Return the statistics; the discounted return belongs to the open episode, which is played again."""
        return {**_state_of(self.return_rms, is_frozen=not self.update_running_mean), **self._observed.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Load the statistics that `state_dict` returned."""
        if "mean" in state:
            _load(self.return_rms, state)
            self.update_running_mean = not state["is_frozen"]
        self._observed.load_state_dict(state, shape=np.shape(self.return_rms.mean))

    def adopt(self, states: Sequence[State]) -> None:
        """Use the joint statistics of several wrappers from now on and learn no more."""
        _load(self.return_rms, _joined(states))
        self.update_running_mean = False


class _Observed:
    """Observations of a wrapper, apart from what it normalises by, for the run that merges those of several.

    Off until a state with `round` is loaded. A `round` that is not the present one closes that: what was observed in it
    is `taken` and stays so until the next is closed, and observing begins anew. As the closing is one message, nothing
    is lost or counted twice, whatever an env does before the state with `taken` is asked for; and a state that
    `state_dict` returned, which a recreated env gets, holds both.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._round = 0

    def add(self, row: Array) -> None:
        """Take one row in."""
        self._observer.add(row)

    def state_dict(self) -> State:
        """Return the round with what was observed in it and taken of the one before; nothing while it is off."""
        if not self.is_on:
            return {}
        return {
            "round": self._round,
            "observed": self._observer.moments._asdict(),
            "taken": self._taken._asdict(),
        }

    def load_state_dict(self, state: State, *, shape: tuple[int, ...]) -> None:
        """Load a state that `state_dict` returned, or begin the round that a state names."""
        if "round" not in state:
            return
        if not self.is_on:
            self.is_on = True
            self._observer, self._taken = Observer(shape), Moments.empty(shape)
        if "observed" in state:
            self._observer.restart(Moments(**state["observed"]))
            self._taken = Moments(**state["taken"])
        elif state["round"] != self._round:
            self._taken = self._observer.moments
            self._observer.restart()
        self._round = int(state["round"])


def _state_of(rms: RunningMeanStd, *, is_frozen: bool) -> State:
    return {"mean": np.array(rms.mean), "var": np.array(rms.var), "count": float(rms.count), "is_frozen": is_frozen}


def _load(rms: RunningMeanStd, state: State) -> None:
    mean, var = np.array(state["mean"]), np.array(state["var"])
    if mean.shape != np.shape(rms.mean):
        raise CheckpointError(
            f"the saved statistics have shape {mean.shape}, this env needs {np.shape(rms.mean)}; use the env and "
            "env.wrappers of the run that saved them."
        )
    rms.mean, rms.var, rms.count = mean, var, float(state["count"])


def _joined(states: Sequence[State]) -> State:
    """Return the statistics of all that several have seen, as if one had seen it."""
    count = np.array([state["count"] for state in states])
    mean, var = (np.stack([state[name] for state in states]) for name in ("mean", "var"))
    weight = (count / count.sum()).reshape(-1, *[1] * (mean.ndim - 1))
    joint = (weight * mean).sum(axis=0)
    return {"mean": joint, "var": (weight * (var + (mean - joint) ** 2)).sum(axis=0), "count": float(count.sum())}


def moments_of(state: State) -> Moments:
    """Return the moments in the state of one of these wrappers."""
    mean, count = np.asarray(state["mean"], np.float64), float(state["count"])
    if count <= _COUNT_AT_FIRST:
        return Moments.empty(mean.shape)
    return Moments(count, mean, np.asarray(np.asarray(state["var"]) * count))


def state_of_moments(moments: Moments) -> State:
    """Return the state of a frozen wrapper with these moments; with no data, mean 0 and variance 1."""
    count = moments.count or _COUNT_AT_FIRST
    return {"mean": moments.mean, "var": np.asarray(moments.var), "count": float(count), "is_frozen": True}
