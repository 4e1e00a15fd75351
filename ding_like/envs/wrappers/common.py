"""Wrappers of observations, actions, rewards and episodes: gymnasium's by the names that configs use, and our own."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import (
    ClipReward,
    FrameStackObservation,
    RescaleAction,
    ReshapeObservation,
    TimeLimit,
    TransformAction,
    TransformObservation,
)
from gymnasium.wrappers.utils import RunningMeanStd

from ding_like.data.batch import ACTION_MASK, LAST_STEP
from ding_like.envs.spaces import AnyEnv, Space
from ding_like.errors import CheckpointError, ConfigError, EnvError
from ding_like.types import Array, EnvAction, EnvObs, Info, State
from ding_like.utils.log import one_time_info
from ding_like.utils.measure import Moments, Observer
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

# Gymnasium's own would have evaluations count clipped rewards.
ENV_WRAPPER_REGISTRY.alias("ClipReward", "clip_reward")


@ENV_WRAPPER_REGISTRY.register("eval_episode_return")
class EpisodeReturn(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that puts an episode's sum of rewards into `info["eval_episode_return"]` at its end, unless it is there.

    Placed inside a wrapper that changes rewards, it keeps reports and `stop_value` in the env's own currency.
    """

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin to count anew."""
        self._return = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: EnvAction) -> tuple[EnvObs, SupportsFloat, bool, bool, Info]:
        """Step the env and count."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        if terminated or truncated:
            info = {"eval_episode_return": self._return, **info}
        return obs, reward, terminated, truncated, info


@ENV_WRAPPER_REGISTRY.register("frame_stack")
def frame_stack(env: AnyEnv, stack_size: int = 4, *, padding_type: str = "reset") -> AnyEnv:
    """Observe the last `stack_size` observations, stacked along a new first axis.

    Before there are as many, the first one is repeated, or zeros with `padding_type="zero"`.
    """
    return FrameStackObservation(env, stack_size, padding_type=padding_type)


@ENV_WRAPPER_REGISTRY.register("time_limit")
def time_limit(env: AnyEnv, max_episode_steps: int) -> AnyEnv:
    """Truncate episodes after `max_episode_steps` steps."""
    if max_episode_steps < 1:
        raise ConfigError(f"time_limit: max_episode_steps is {max_episode_steps}, expected 1 or more.")
    return TimeLimit(env, max_episode_steps)


@ENV_WRAPPER_REGISTRY.register("clip_reward")
def clip_reward(env: AnyEnv, min_reward: float | None = None, max_reward: float | None = None) -> AnyEnv:
    """Clip rewards to a range, by default -1 to 1; `info["eval_episode_return"]` sums the rewards as they were."""
    low, high = (-1.0, 1.0) if min_reward is None and max_reward is None else (min_reward, max_reward)
    if low is not None and high is not None and low > high:
        raise ConfigError(f"clip_reward: min_reward {low} is above max_reward {high}.")
    return ClipReward(EpisodeReturn(env), low, high)


@ENV_WRAPPER_REGISTRY.register("rescale_action")
def rescale_action(env: AnyEnv, min_action: float = -1.0, max_action: float = 1.0) -> AnyEnv:
    """Take actions from `min_action` to `max_action` and stretch them to the range of the env's Box."""
    space = env.action_space
    if not isinstance(space, spaces.Box) or not space.is_bounded():
        raise ConfigError(f"rescale_action takes Box actions with finite bounds, the env has {space}: leave it out.")
    if min_action >= max_action:
        raise ConfigError(f"rescale_action: min_action {min_action} is not below max_action {max_action}.")
    number = space.dtype.type  # gymnasium warns of a float32 bound of a float64 Box
    return RescaleAction(env, number(min_action), number(max_action))


def _box(space: Space, takes: str, num_axes: int | None = None, fix: str = ".") -> spaces.Box:
    """Return a Box space. Raises ConfigError with what a wrapper `takes` for another, or one of other axes."""
    if not isinstance(space, spaces.Box) or num_axes not in (None, len(space.shape)):
        raise ConfigError(f"{takes}, the env has {space}{fix}")
    return space


@ENV_WRAPPER_REGISTRY.register("obs_transpose")
def obs_transpose(env: AnyEnv) -> AnyEnv:
    """Show images [H, W, C] as [C, H, W], as the models take them."""
    space = _box(env.observation_space, "obs_transpose takes images [H, W, C]", 3)
    low, high = space.low.transpose(2, 0, 1), space.high.transpose(2, 0, 1)
    turned = spaces.Box(low, high, dtype=space.dtype.type)
    return TransformObservation(env, lambda image: image.transpose(2, 0, 1), turned)


@ENV_WRAPPER_REGISTRY.register("obs_select")
def obs_select(env: AnyEnv, indices: Sequence[int]) -> AnyEnv:
    """Show only these entries of a vector observation, in this order; an agent has to remember the rest.

    Raises ConfigError for observations that are no vector, and for entries that it does not have.
    """
    fix = "; flatten it first with FlattenObservation."
    space, chosen = _box(env.observation_space, "obs_select takes vectors", 1, fix), list(indices)
    if not chosen or not all(isinstance(i, int) and 0 <= i < space.shape[0] for i in chosen):
        raise ConfigError(f"obs_select: indices are {chosen}, expected some of 0 to {space.shape[0] - 1}.")
    left = spaces.Box(space.low[chosen], space.high[chosen], dtype=space.dtype.type)
    return TransformObservation(env, lambda obs: obs[chosen], left)


@ENV_WRAPPER_REGISTRY.register("act_scale")
def act_scale(env: AnyEnv) -> AnyEnv:
    """Take continuous actions from -1 to 1 and stretch them to the env's Box; leave other action spaces as they are.

    Raises ConfigError for a Box without finite bounds.
    """
    if isinstance(env.action_space, spaces.Box):
        return rescale_action(env)
    one_time_info(f"env.act_scale changes nothing: the actions of {env} are {env.action_space}")
    return env


@ENV_WRAPPER_REGISTRY.register("discrete_action")
class DiscreteAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """Wrapper whose action is one of `num_actions` values, evenly spaced over the env's Box [1], both bounds included.

    Raises ConfigError for other action spaces, and for fewer than two values.
    """

    def __init__(self, env: AnyEnv, num_actions: int = 11) -> None:
        space = env.action_space
        if not isinstance(space, spaces.Box) or space.shape != (1,) or not space.is_bounded():
            raise ConfigError(f"discrete_action takes a Box of one number with finite bounds, the env has {space}.")
        if num_actions < 2:
            raise ConfigError(f"discrete_action: num_actions is {num_actions}, expected 2 or more.")
        super().__init__(env)
        self._values = np.linspace(space.low, space.high, num_actions, dtype=space.dtype)  # [N, 1]
        self.action_space = spaces.Discrete(num_actions)

    def action(self, action: EnvAction) -> Array:
        """Return the value of a number, [1]."""
        return np.array(self._values[int(action)])


@ENV_WRAPPER_REGISTRY.register("delay_reward")
class DelayReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that pays the sum of the last `steps` rewards at every `steps`-th step and at an episode's end, else 0.

    Source: Zheng et al. 2018, delayed MuJoCo tasks. Raises ConfigError for less than one step.
    """

    def __init__(self, env: AnyEnv, steps: int) -> None:
        if steps < 1:
            raise ConfigError(f"delay_reward: steps is {steps}, expected 1 or more.")
        super().__init__(env)
        self._steps = steps

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin an episode without rewards to pay."""
        self._time, self._unpaid = 0, 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        """Step the env and pay what is due."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._time += 1
        self._unpaid += float(reward)
        if self._time % self._steps and not (terminated or truncated):
            return obs, 0.0, terminated, truncated, info
        paid, self._unpaid = self._unpaid, 0.0
        return obs, paid, terminated, truncated, info


@ENV_WRAPPER_REGISTRY.register("action_repeat")
class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that takes each action `action_repeat` times, or until the episode ends, and sums up the rewards.

    Raises ConfigError for less than once.
    """

    def __init__(self, env: AnyEnv, action_repeat: int = 1) -> None:
        if action_repeat < 1:
            raise ConfigError(f"action_repeat is {action_repeat}, expected 1 or more.")
        super().__init__(env)
        self._times = action_repeat

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        """Step the env as often; observation, end and info are those of the last time."""
        total = 0.0
        for _ in range(self._times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


@ENV_WRAPPER_REGISTRY.register("clip_action")
def clip_action(env: AnyEnv) -> AnyEnv:
    """Clip actions to the env's Box; the action space stays as it is. Raises ConfigError for another space."""
    space = _box(env.action_space, "clip_action takes Box actions")
    low, high = space.low, space.high
    return TransformAction(env, lambda action: np.clip(action, low, high), space)


@ENV_WRAPPER_REGISTRY.register("stack_channels")
def stack_channels(env: AnyEnv) -> AnyEnv:
    """Show stacked images [K, C, H, W] as one image of K * C channels. Raises ConfigError for other observations."""
    space = _box(env.observation_space, "stack_channels takes stacks of images [K, C, H, W]", 4)
    return ReshapeObservation(env, (space.shape[0] * space.shape[1], *space.shape[2:]))


@ENV_WRAPPER_REGISTRY.register("info_mask")
class InfoMask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that shows the mask of legal actions of `info["action_mask"]`, [A], beside what the env observes.

    The observation is a dict of `observation` and `action_mask`. Raises ConfigError for an env without discrete
    actions, EnvError at a reset or step whose info has no mask.
    """

    def __init__(self, env: AnyEnv) -> None:
        if not isinstance(env.action_space, spaces.Discrete):
            raise ConfigError(f"info_mask is for envs with Discrete actions, the env has {env.action_space}.")
        super().__init__(env)
        mask = spaces.MultiBinary(int(env.action_space.n))
        self.observation_space = spaces.Dict({"observation": env.observation_space, ACTION_MASK: mask})

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._beside(obs, info), info

    def step(self, action: EnvAction) -> tuple[EnvObs, SupportsFloat, bool, bool, Info]:
        """Step the env."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._beside(obs, info), reward, terminated, truncated, info

    def _beside(self, obs: EnvObs, info: Info) -> dict[str, Any]:
        if ACTION_MASK not in info:
            raise EnvError(f"the wrapper 'info_mask' needs info['{ACTION_MASK}'], but {self.env} gave {sorted(info)}.")
        return {"observation": obs, ACTION_MASK: np.asarray(info[ACTION_MASK], np.int8)}


@ENV_WRAPPER_REGISTRY.register("obs_plus_prev_action_reward")
class ObsPlusLastStep(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that shows the last action and reward beside what the env observes; both are zero in the first step.

    The observation is a dict of `obs` (or of the entries of the env's own dict), `prev_action`, one-hot where it is
    discrete, and `prev_reward_extrinsic` [1]. Raises ConfigError for actions that have no fixed length.
    """

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        own, actions = env.observation_space, env.action_space
        if not actions.is_np_flattenable:
            raise ConfigError(f"obs_plus_prev_action_reward takes actions of a fixed length, the env has {actions}.")
        self._size = spaces.flatdim(actions)
        last = [spaces.Box(-np.inf, np.inf, (size,), np.float32) for size in (self._size, 1)]
        self._is_dict = isinstance(own, spaces.Dict)
        parts = dict(own.spaces) if isinstance(own, spaces.Dict) else {"obs": own}
        self.observation_space = spaces.Dict({**parts, **dict(zip(LAST_STEP, last, strict=True))})

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._beside(obs, np.zeros(self._size, np.float32), 0.0), info

    def step(self, action: EnvAction) -> tuple[EnvObs, SupportsFloat, bool, bool, Info]:
        """Step the env."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        last = np.asarray(spaces.flatten(self.env.action_space, action), np.float32)
        return self._beside(obs, last, float(reward)), reward, terminated, truncated, info

    def _beside(self, obs: EnvObs, action: Array, reward: float) -> dict[str, Any]:
        last = zip(LAST_STEP, (action, np.array([reward], np.float32)), strict=True)
        return {**(obs if self._is_dict else {"obs": obs}), **dict(last)}


_LETTERS = {letter: place for place, letter in enumerate(string.ascii_lowercase + " ")}
_MISSION_LENGTH = 96


@ENV_WRAPPER_REGISTRY.register("flat_mission")
class FlatMission(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Wrapper that shows a MiniGrid observation as one vector, uint8: the view, then the mission's letters one-hot.

    96 letters of 27 kinds follow the view of 7 x 7 x 3: [2739], as DI-engine's configs have it. Other signs, commas for
    instance, are left out. Raises ConfigError for an env without an image and a mission.
    """

    def __init__(self, env: AnyEnv) -> None:
        space = env.observation_space
        if not isinstance(space, spaces.Dict) or not {"image", "mission"} <= set(space.spaces):
            raise ConfigError(f"flat_mission is for MiniGrid's observations of 'image' and 'mission', got {space}.")
        super().__init__(env)
        size = int(np.prod(space["image"].shape or ())) + _MISSION_LENGTH * len(_LETTERS)
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)
        self._mission, self._letters = "", _one_hot_letters("")

    def observation(self, observation: EnvObs) -> Array:
        """Return the view and the mission as one vector."""
        if observation["mission"] != self._mission:
            self._mission = observation["mission"]
            self._letters = _one_hot_letters(self._mission)
        return np.concatenate([np.asarray(observation["image"], np.uint8).reshape(-1), self._letters])


@ENV_WRAPPER_REGISTRY.register("grid_view")
def grid_view(env: AnyEnv) -> AnyEnv:
    """Show of a MiniGrid observation the view alone, [3, 7, 7] uint8. Raises ConfigError for an env without one."""
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or not isinstance(space.spaces.get("image"), spaces.Box):
        raise ConfigError(f"grid_view is for MiniGrid's observations with an 'image', got {space}.")
    low, high = (np.transpose(getattr(space["image"], side), (2, 0, 1)) for side in ("low", "high"))
    view = spaces.Box(low, high, dtype=np.uint8)
    return TransformObservation(env, lambda obs: np.transpose(obs["image"], (2, 0, 1)), view)


def _one_hot_letters(text: str) -> Array:
    """Return uint8 [96 * 27]: a place of each letter's own 27 is 1; none where the text has ended."""
    letters = np.zeros((_MISSION_LENGTH, len(_LETTERS)), np.uint8)
    for row, letter in enumerate(text.lower()[:_MISSION_LENGTH]):
        if letter in _LETTERS:
            letters[row, _LETTERS[letter]] = 1
    return letters.reshape(-1)


@ENV_WRAPPER_REGISTRY.register("encode_text")
class EncodeText(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Wrapper that shows each Text, alone or an entry of a Dict, as the numbers of its characters, [max_length].

    Characters count from 1 in the order of their space, 0 fills up. A model sees them one-hot. Raises ConfigError for
    an env without text.
    """

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self._seen = env.observation_space
        self.observation_space = _encoded_space(self._seen)
        if self.observation_space is self._seen:
            raise ConfigError(f"encode_text is for observations with Text, the env has {self._seen}.")

    def observation(self, observation: EnvObs) -> EnvObs:
        """Return the observation with numbers in place of text."""
        return _encoded(self._seen, observation)


# Any: spaces of any kind, and what is in them.
def _encoded_space(space: Any) -> Any:
    """Return the space of what `_encoded` gives; the same one where there is no text in it."""
    if isinstance(space, spaces.Text):
        return spaces.MultiDiscrete([len(space.character_list) + 1] * space.max_length)
    if not isinstance(space, spaces.Dict):
        return space
    inner = {key: _encoded_space(own) for key, own in space.spaces.items()}
    return spaces.Dict(inner) if any(inner[key] is not own for key, own in space.spaces.items()) else space


def _encoded(space: Any, observation: EnvObs) -> Any:
    if isinstance(space, spaces.Text):
        codes: Array = np.zeros(space.max_length, np.int64)
        codes[: len(observation)] = [1 + space.character_index(character) for character in observation]
        return codes
    if isinstance(space, spaces.Dict):
        return {key: _encoded(own, observation[key]) for key, own in space.spaces.items()}
    return observation


_COUNT_AT_FIRST = 1e-4  # gymnasium's, of a mean of 0 and a variance of 1


# Gymnasium's own would lose their statistics when a run is resumed, so their names mean these.
ENV_WRAPPER_REGISTRY.alias("NormalizeObservation", "obs_norm")
ENV_WRAPPER_REGISTRY.alias("NormalizeReward", "reward_norm")


class _Normaliser:
    """Base class of wrappers whose running statistics, in `_statistics`, are saved with the run."""

    update_running_mean: bool
    _statistics: RunningMeanStd
    _observed: _Observed

    def state_dict(self) -> State:
        """Return the statistics; a discounted return belongs to the open episode, which is played again."""
        rms = self._statistics
        state = {"mean": np.array(rms.mean), "var": np.array(rms.var), "count": float(rms.count)}
        return {**state, "is_frozen": not self.update_running_mean, **self._observed.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Load the statistics that `state_dict` returned."""
        if "mean" in state:
            self._load(state)
            self.update_running_mean = not state["is_frozen"]
        self._observed.load_state_dict(state, shape=np.shape(self._statistics.mean))

    def adopt(self, states: Sequence[State]) -> None:
        """Use the joint statistics of several wrappers from now on, as if one had seen it all, and learn no more."""
        count = np.array([state["count"] for state in states])
        mean, var = (np.stack([state[name] for state in states]) for name in ("mean", "var"))
        weight = (count / count.sum()).reshape(-1, *[1] * (mean.ndim - 1))
        joint = (weight * mean).sum(axis=0)
        joint_var = (weight * (var + (mean - joint) ** 2)).sum(axis=0)
        self._load({"mean": joint, "var": joint_var, "count": float(count.sum())})
        self.update_running_mean = False

    def _load(self, state: State) -> None:
        rms, mean = self._statistics, np.array(state["mean"])
        if mean.shape != np.shape(rms.mean):
            raise CheckpointError(
                f"the saved statistics have shape {mean.shape}, this env needs {np.shape(rms.mean)}; use the env and "
                "env.wrappers of the run that saved them."
            )
        rms.mean, rms.var, rms.count = mean, np.array(state["var"]), float(state["count"])


@ENV_WRAPPER_REGISTRY.register("obs_norm")
class ObsNorm(_Normaliser, gymnasium.wrappers.NormalizeObservation[Any, Any, Any]):
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
        rms = RunningMeanStd(shape=env.observation_space.shape)  # type: ignore[no-untyped-call]
        self.obs_rms = self._statistics = rms
        self._observed = _Observed()

    def observation(self, observation: EnvObs) -> EnvObs:
        """Return the observation normalised, float32."""
        if not np.isfinite(observation).all():
            return np.float32(observation)
        self._observed.add(observation)
        return np.clip(super().observation(observation), -self.clip, self.clip)

    def normalised(self, rows: Array) -> Array:
        """Return observations [N, O...] normalised by the present statistics, float32; none of them is learned from."""
        rms = self._statistics
        normalised = (rows - rms.mean) / np.sqrt(rms.var + self.epsilon)
        return np.clip(normalised, -self.clip, self.clip).astype(np.float32)

    def learn_moments(self, moments: Moments) -> None:
        """Normalise by the moments of other observations [N, O...] from now on, and learn no more."""
        self.adopt([state_of_moments(moments)])


@ENV_WRAPPER_REGISTRY.register("reward_norm")
class RewardNorm(_Normaliser, gymnasium.wrappers.NormalizeReward[Any, Any]):
    """Wrapper that divides rewards by the standard deviation of the discounted return, by running statistics.

    What is then beyond `clip` is cut: the first reward of a run would be 100 times the later ones.
    The discounted return starts from 0 with every episode, also after a truncation. `info["eval_episode_return"]`
    holds the sum of the env's own rewards at an episode's end, so reports and `stop_value` mean those. A reward that
    is not finite passes unchanged and is not learned from. Source: Engstrom et al. 2020, reward scaling.
    """

    def __init__(self, env: AnyEnv, gamma: float = 0.99, epsilon: float = 1e-8, *, clip: float = 10.0) -> None:
        super().__init__(EpisodeReturn(env), gamma, epsilon)
        self._statistics = self.return_rms
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
            self._observed.add(self.discounted_reward[0])
            if self.update_running_mean:
                self.return_rms.update(self.discounted_reward)  # type: ignore[no-untyped-call]
            reward /= math.sqrt(float(self.return_rms.var) + self.epsilon)
            reward = min(max(reward, -self.clip), self.clip)
        return obs, reward, terminated, truncated, info


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
        """Take one row in, unless it is off."""
        if self.is_on:
            self._observer.add(row)

    def state_dict(self) -> State:
        """Return the round with what was observed in it and taken of the one before; nothing while it is off."""
        if not self.is_on:
            return {}
        return {"round": self._round, "observed": self._observer.moments._asdict(), "taken": self._taken._asdict()}

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
