"""Collection and gradients with actors, algorithms, storages and envs of a user (docs/ray_parts.md)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding_like.comm.channels import CollectRequest, Segment, Version, Weights
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError
from ding_like.pipeline.collect import UNTRAINED, PolicyWeights
from ding_like.types import Array, State
from ding_like.worker.collector.loop import StopRule, episode_shares, whole_number

_RECENT = 100  # episodes whose returns are averaged


class PlainWeights(PolicyWeights):
    """Weights of an actor of a user's own, set by any thread, and loaded while the actor is not in use."""

    policy: Any  # an actor with `state_dict` and `load_state_dict`

    def use_policy(self, policy: Any) -> None:
        """Set the weights of another actor, which has had none yet."""
        self.policy, self.version, self._put = policy, UNTRAINED, None

    def read(self, given: object) -> Weights:
        """Return {"version": int, "weights": state dict} as weights.

        Raises CommError for anything else, and for names or shapes that the actor does not have.
        """
        if not isinstance(given, Mapping) or not {"version", "weights"} <= set(given):
            raise CommError(
                f"a worker was given {type(given).__name__} as weights; expected a dict of version and weights."
            )
        version, state = Version(1, whole_number("version", given["version"], least=0)), given["weights"]
        own = {name: np.shape(value) for name, value in self.policy.state_dict().items()}
        for name in {*own, *state}:
            if name not in own or name not in state or own[name] != np.shape(state[name]):
                got = np.shape(state[name]) if name in state else "nothing"
                raise CommError(f"weights '{name}' have shape {got}, and the actor's {own.get(name, 'are not there')}.")
        return Weights("policy", version, state)

    def take(self, weights: Weights) -> None:
        """Load weights, whichever they are."""
        # Arrays that came through Ray are read-only, and not this process's own.
        self.policy.load_state_dict({name: torch.as_tensor(value).clone() for name, value in weights.state.items()})
        self.version = weights.version


class StepCollector:
    """Loop of a plain algorithm's `acting_step` over a gymnasium vector env; it fills a storage."""

    def __init__(self, envs: Any, worker: Any, weights: PlainWeights) -> None:
        """Reset the envs, by a seed of the worker's place; `worker` has `algo` and `storage`, which may be replaced."""
        self._envs, self._worker, self._weights = envs, worker, weights
        self.envstep, self.random_steps = 0, 0
        self.obs, _ = envs.reset(seed=10_000 * worker.index_parent + 100 * worker.index_worker)
        self.done = torch.ones(envs.num_envs, dtype=torch.bool)
        self.recurrent_state: Any = None
        self._returns = np.zeros(envs.num_envs)
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self.num_collected, self._acting = 0, UNTRAINED  # in the last collection, and by which version

    @property
    def mean_return(self) -> float:
        """Mean return of the last 100 episodes; NaN before the first."""
        return sum(self._recent) / len(self._recent) if self._recent else math.nan

    def rows_rule(self, least: int) -> StopRule:
        """Return the rule that is met once a collection that begins now has `least` rows."""
        last = self.envstep + least
        return lambda: self.envstep >= last

    def collect(self, request: CollectRequest, *, stop: StopRule | None = None) -> None:
        """Collect a request's rows into the storage, one of each env a step, or fewer if `stop` is met before."""
        first = self.envstep
        while self.envstep - first < request.rows and not (stop is not None and stop()):
            self._step()
        self.num_collected, self._acting = self.envstep - first, self._weights.version

    def _step(self) -> None:
        obs, done = self.obs, self.done
        if self.envstep < self.random_steps:
            action, rhs, extras = self._envs.action_space.sample(), self.recurrent_state, {}
        else:
            action, rhs, extras = self._worker.algo.acting_step(obs, self.recurrent_state, done, deterministic=False)
        next_obs, reward, terminated, truncated, _ = self._envs.step(_array(action))
        ended = np.logical_or(terminated, truncated)
        self._worker.storage.insert_transition(
            {"obs": obs, "action": _array(action), "reward": np.asarray(reward, np.float32), "next_obs": next_obs,
             "terminated": np.asarray(terminated), "truncated": np.asarray(truncated), **extras}
        )  # fmt: skip
        self.obs, self.recurrent_state, self.done = next_obs, rhs, torch.as_tensor(ended)
        self.envstep += self._envs.num_envs
        self._returns += reward
        self._recent.extend(self._returns[ended].tolist())
        self._returns[ended] = 0.0

    def take(self) -> Segment:
        """Return the rows of the last collection."""
        columns = {name: _array(column) for name, column in self._worker.storage.get_data().items()}
        return Segment(TransitionBatch(columns), self._acting, self.num_collected, {"return": self.mean_return})

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()


def mean_test_return(envs: Any, algo: Any, episodes: int) -> float:
    """Return the mean return of `episodes` fresh episodes, of which each env plays its share."""
    lacking = np.array(episode_shares(episodes, envs.num_envs))
    (obs, _), rhs, done = envs.reset(), None, torch.ones(envs.num_envs, dtype=torch.bool)
    running, returns = np.zeros(envs.num_envs), []
    while (lacking > 0).any():
        action, rhs, _ = algo.acting_step(obs, rhs, done, deterministic=True)
        obs, reward, terminated, truncated, _ = envs.step(_array(action))
        ended = np.logical_or(terminated, truncated)
        running += reward
        returns += running[ended & (lacking > 0)].tolist()
        lacking[ended] -= 1
        running[ended], done = 0.0, torch.as_tensor(ended)
    return float(np.mean(returns))


def _array(value: Any) -> Array:  # Any: a tensor or an array
    found: Array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return found


def mean_gradients(gradients: Sequence[State]) -> State:
    """Return the mean of gradients by name, of several workers."""
    return {name: sum(each[name] for each in gradients) / len(gradients) for name in gradients[0]}


def weaken_gradients(gradients: State, factor: float) -> State:
    """Return gradients by name that count a share `factor`."""
    return {name: factor * each for name, each in gradients.items()}
