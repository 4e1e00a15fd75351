"""Say where the goals of rows lie, and what rows are worth under other goals: what hindsight needs of an env."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ding_like.errors import ConfigError
from ding_like.types import Array

_NUM_STEPS = 32  # of an env that are compared with what its compute_reward says
_SEED = 0  # of those steps: a run's own random numbers are not touched

# Any: an env of any kind, gymnasium's or one that is shown as such.
Env = Any


class GoalPlace(NamedTuple):
    """Say which part of which column holds a goal, in rows whose observations are dicts or flat vectors."""

    key: str | None  # of a dict observation; None: the observation is one vector
    part: slice = slice(None)

    def column(self, prefix: str) -> str:
        """Return the column's name for `prefix` "obs" or "next_obs"."""
        return prefix if self.key is None else f"{prefix}/{self.key}"

    def of(self, columns: Mapping[str, Array], prefix: str) -> Array:
        """Return the goals [B, G] of rows, a view."""
        return columns[self.column(prefix)][:, self.part]

    def of_obs(self, obs: Any) -> Array:
        """Return the goal [G] of one observation of the env."""
        return np.asarray(obs if self.key is None else obs[self.key])[self.part]


class GoalRules:
    """Hold an env's `compute_reward` and, if it has one, `compute_terminated`, both of goals [B, G].

    The env is made for this alone; `close` closes it. Its observations are dicts with `achieved_goal` and
    `desired_goal` (gymnasium-robotics), or vectors whose first `goal_size` numbers are what was achieved and whose last
    ones are what is desired; an env that does not say its `goal_size` has half of them (DI-engine's form).

    Raises ConfigError for an env that has no such function, whose rewards or ends are not what its functions say of
    them, or whose goals a wrapper changes.
    """

    def __init__(self, make_env: Callable[[], Env]) -> None:
        self._env = make_env()
        try:
            owner = _owner_of(self._env, "compute_reward")
            if owner is None:
                raise ConfigError(
                    f"replay_buffer.type 'her' needs an env with compute_reward(achieved_goal, desired_goal, info), "
                    f"which {self._env} has not. Give it one (docs/algorithms/her.md), or set the type to 'naive'."
                )
            self._compute_reward: Callable[..., Any] = owner.compute_reward
            ending = _owner_of(self._env, "compute_terminated")
            self._compute_terminated = None if ending is None else ending.compute_terminated
            self.achieved, self.desired = _places(self._env)
            self._check_goals_of(owner)
            self._check()
        except BaseException:
            self._env.close()
            raise

    def reward(self, achieved: Array, desired: Array) -> Array:
        """Return the reward [B] of having come to `achieved` [B, G] where `desired` [B, G] was the goal."""
        return np.asarray(self._compute_reward(achieved, desired, {}))

    def terminated(self, achieved: Array, desired: Array) -> Array | None:
        """Return whether that ends an episode, bool [B]; None where the env does not say."""
        if self._compute_terminated is None:
            return None
        ends = np.asarray(self._compute_terminated(achieved, desired, {}), bool)
        return np.broadcast_to(ends, (len(achieved),))

    def relabel(self, columns: MutableMapping[str, Array], goals: Array) -> None:
        """Give the first G of rows [B, ...] the goals [G, ...], with the rewards and the ends that follow; in place.

        A row that ended for another reason than its goal stays ended, and `truncated` stays as it is.
        """
        rows = slice(len(goals))
        achieved = self.achieved.of(columns, "next_obs")[rows]
        terminated = columns["terminated"]
        old_ends = self.terminated(achieved, self.desired.of(columns, "next_obs")[rows])
        new_ends = self.terminated(achieved, goals)
        if old_ends is not None and new_ends is not None:
            terminated[rows] = (terminated[rows] & ~old_ends) | new_ends
        columns["reward"][rows] = self.reward(achieved, goals)
        for prefix in ("obs", "next_obs"):
            self.desired.of(columns, prefix)[rows] = goals

    def close(self) -> None:
        """Close the env; may be called again."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    # --- checks

    def _check(self) -> None:
        """Raise ConfigError unless the env's own steps have the rewards that its function gives, all at once."""
        achieved, desired, rewards, ended = self._played()
        # Goals that were reached, too: few are by chance.
        both, wanted = np.concatenate([achieved, achieved]), np.concatenate([desired, achieved])
        self._check_is_vectorised("compute_reward", self._compute_reward, both, wanted)
        if self._compute_terminated is not None:
            self._check_is_vectorised("compute_terminated", self._compute_terminated, both, wanted)
        said = self.reward(achieved, desired)
        wrong = np.flatnonzero(~np.isclose(said, rewards, rtol=1e-4, atol=1e-5))
        if len(wrong):
            raise ConfigError(
                f"replay_buffer.type 'her' computes rewards by the env's compute_reward, but {len(wrong)} of "
                f"{len(rewards)} steps of {self._env} were rewarded otherwise: the first with {rewards[wrong[0]]:g}, "
                f"where compute_reward gives {said[wrong[0]]:g}. Take out the env.wrappers that change rewards or "
                "goals, or mend compute_reward."
            )
        self._check_ends(achieved, desired, ended)

    def _check_ends(self, achieved: Array, desired: Array, ended: Array) -> None:
        """Raise ConfigError where steps ended, bool [N], as no `compute_terminated` says, or did not end as it says."""
        said = self.terminated(achieved, desired)
        if said is None and ended.any():
            raise ConfigError(
                f"replay_buffer.type 'her' gives rows other goals, but {self._env} terminates episodes and does not "
                "say by which goals: give it compute_terminated(achieved_goal, desired_goal, info) "
                "(docs/algorithms/her.md)."
            )
        if said is not None and (said & ~ended).any():
            raise ConfigError(
                f"{int((said & ~ended).sum())} of {len(ended)} steps of {self._env} went on where its "
                "compute_terminated says that they end: make both agree."
            )

    def _check_goals_of(self, owner: Env) -> None:
        """Raise ConfigError where wrappers around the env that has `compute_reward` change goals.

        An env whose goals its random seed does not decide is not looked at.
        """
        if owner is self._env:
            return
        try:
            places = _places(owner)
        except ConfigError:
            return  # its goals have another form, which a wrapper brings into this one
        first, second = _goals(owner, places), _goals(owner, places)
        if np.array_equal(first, second) and not np.allclose(first, _goals(self._env, (self.achieved, self.desired))):
            raise ConfigError(
                f"replay_buffer.type 'her' computes rewards by the goals of {owner}, but the env.wrappers or keys "
                f"such as norm_obs around it change goals: {self._env}. Take them out, or let them leave goals alone."
            )

    def _check_is_vectorised(self, name: str, compute: Callable[..., Any], achieved: Array, desired: Array) -> None:
        """Raise ConfigError unless a function gives for all pairs [N, G] at once what it gives for each."""
        try:
            one_by_one = np.array([float(compute(*pair, {})) for pair in zip(achieved, desired, strict=True)])
        except KeyError as error:
            raise ConfigError(
                f"{name} of {self._env} reads info[{error}], but hindsight knows of no info under another goal: let it "
                "read the goals alone."
            ) from error
        try:
            together = np.asarray(compute(achieved, desired, {}), np.float64)
            # Of envs whose episodes never end it may be one number for all.
            fits = together.shape in ((len(achieved),), ()) and np.allclose(together, one_by_one, atol=1e-5)
        except (ValueError, TypeError, IndexError):
            fits = False
        if not fits or (name == "compute_reward" and together.shape == ()):
            raise ConfigError(
                f"{name} of {self._env} must take goals [B, {achieved.shape[1]}] and return [B], the same as for each "
                "pair alone, as gymnasium-robotics has it: use axis=-1 in norms and comparisons."
            )

    def _played(self) -> tuple[Array, Array, Array, Array]:
        """Return what random actions achieved [N, G], what was desired [N, G], rewards [N] and `terminated` [N]."""
        env = self._env
        actions = copy.deepcopy(env.action_space)
        actions.seed(_SEED)
        env.reset(seed=_SEED)
        achieved, desired, rewards, ended = [], [], [], []
        for _ in range(_NUM_STEPS):
            obs, reward, terminated, truncated, _ = env.step(actions.sample())
            achieved.append(np.array(self.achieved.of_obs(obs)))
            desired.append(np.array(self.desired.of_obs(obs)))
            rewards.append(float(reward))
            ended.append(bool(terminated))
            if terminated or truncated:
                env.reset()
        return np.stack(achieved), np.stack(desired), np.array(rewards), np.array(ended)


def _owner_of(env: Env, name: str) -> Env | None:
    """Return the env, or the one that it wraps, that has an attribute; None where none has it."""
    while env is not None and getattr(env, name, None) is None:
        env = getattr(env, "env", None)
    return env


def _goals(env: Env, places: Iterable[GoalPlace]) -> Array:
    """Return what an episode begins with: the achieved and the desired goal, [2, G]."""
    obs, _ = env.reset(seed=_SEED)
    return np.stack([np.array(place.of_obs(obs), np.float64) for place in places])


def _places(env: Env) -> tuple[GoalPlace, GoalPlace]:
    """Return where the achieved and the desired goal lie. Raises ConfigError for an observation that has none."""
    space = env.observation_space
    if isinstance(space, spaces.Dict):
        achieved, desired = (space.spaces.get(key) for key in ("achieved_goal", "desired_goal"))
        if achieved is not None and desired is not None and achieved.shape == desired.shape and achieved.shape:
            if len(achieved.shape) == 1:
                return GoalPlace("achieved_goal"), GoalPlace("desired_goal")
    elif isinstance(space, spaces.Box) and len(space.shape) == 1:
        size = _goal_size(env, space.shape[0])
        if 0 < 2 * size <= space.shape[0]:
            return GoalPlace(None, slice(0, size)), GoalPlace(None, slice(space.shape[0] - size, None))
    raise ConfigError(
        f"replay_buffer.type 'her' finds no goals in the observation {space} of {env}: expected a Dict with vectors "
        "'achieved_goal' and 'desired_goal' of one length, or one vector that begins with the achieved and ends with "
        "the desired goal, each of the env's `goal_size` numbers (default: half of it)."
    )


def _goal_size(env: Env, obs_size: int) -> int:
    owner = _owner_of(env, "goal_size")
    if owner is not None:
        return int(owner.goal_size)
    return obs_size // 2 if obs_size % 2 == 0 else 0
