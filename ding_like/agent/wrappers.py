"""Env wrappers of a run, applied where there is no env: to observations, and in reverse to actions.

An agent receives observations alone. A wrapper that needs the observation and saved statistics is applied to any batch;
one that needs earlier steps too (stacked frames) is applied where these are remembered; one that needs the env itself
must run where the env is, at the agent's client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium import wrappers as gym

from ding_like.agent.observations import RawBatch, Rows, Space, example
from ding_like.envs.spaces import ActionLayout, HybridRows, ObsLayout, hybrid_rows
from ding_like.envs.wrappers import adopt_wrapper_states, find_wrapper, wrap, wrapper_states
from ding_like.envs.wrappers.common import EpisodeReturn, ObsNorm, RewardNorm
from ding_like.envs.wrappers.pictures import RecordGif
from ding_like.errors import CheckpointError, DingError, describe_error
from ding_like.types import Array, Config, Obs, State

logger = logging.getLogger(__name__)

AnyEnv: TypeAlias = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env
AnyWrapper: TypeAlias = gymnasium.Wrapper[Any, Any, Any, Any]
# An action as the env takes it: an int, an array, the tuple of a hybrid action; of a batch an array or a list.
EnvAction: TypeAlias = Any
# A wrapper as `env.wrappers` has it: its name, or a dict with its `type`.
Spec: TypeAlias = "Config | str"
Needs = Literal["nothing", "steps", "env"]

# Wrappers that change neither observations nor actions.
NO_EFFECT = (
    *(gym.TimeLimit, gym.OrderEnforcing, gym.PassiveEnvChecker, gym.RecordEpisodeStatistics, gym.RenderCollection),
    *(gym.RecordVideo, gym.HumanRendering, gym.NormalizeReward, gymnasium.RewardWrapper),
    *(EpisodeReturn, RewardNorm, RecordGif),
)
_PURE = (gym.TransformObservation, gym.TransformAction)
_TRIED_STEPS = 5


class WrapperLayer(NamedTuple):
    """Entry of `env.wrappers`."""

    spec: Spec
    needs: Needs
    why: str | None  # it cannot be applied to an observation alone; None where it can
    observation_space: Space  # of the env inside this wrapper and those before it
    action_space: Space

    @property
    def name(self) -> str:
        """Name of the wrapper."""
        return self.spec if isinstance(self.spec, str) else str(self.spec.get("type"))

    @property
    def changes_nothing(self) -> bool:
        """Whether the wrapper changes neither observations nor actions, and has no saved state."""
        found = find_wrapper(self.name)
        is_class = isinstance(found, type) and issubclass(found, NO_EFFECT)
        return is_class and not callable(getattr(found, "state_dict", None))


class FedEnv(gymnasium.Env[Any, Any]):
    """Stand-in for a client's env: it has its spaces, and observes what it is fed.

    Rewards are NaN, so that a wrapper whose observations depend on them is found out.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        render_mode: str | None = None,
        parameter_mask: list[list[float]] | None = None,
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.render_mode = render_mode
        if parameter_mask is not None:
            self.parameter_mask = parameter_mask
        self.fed: RawBatch = None  # what the next reset or step observes
        self.num_resets = self.num_steps = 0

    def reset(self, *, seed: int | None = None, options: State | None = None) -> tuple[Any, State]:
        super().reset(seed=seed)
        self.num_resets += 1
        return self.fed, {}

    def step(self, action: EnvAction) -> tuple[Any, float, bool, bool, State]:
        self.num_steps += 1
        return self.fed, float("nan"), False, False, {}


def describe_wrappers(env: AnyEnv, specs: Sequence[Spec]) -> tuple[AnyEnv, tuple[WrapperLayer, ...]]:
    """Return an env inside these wrappers, the first one innermost, and what each of them needs."""
    described: list[WrapperLayer] = []
    for spec in specs:
        wrapped = wrap(env, [spec])
        why = _obstacle(wrapped, env)
        needs: Needs = "nothing"
        if why is not None:
            needs = "steps" if _fits_in_arrays(env) and _works_when_fed(spec, env, wrapped) else "env"
        env = wrapped
        described.append(WrapperLayer(spec, needs, why, env.observation_space, env.action_space))
    return env, tuple(described)


def layers_of(stack: AnyEnv, inner: AnyEnv | None = None) -> Iterator[Any]:
    """Yield the wrappers around an env, the outermost first, down to `inner`."""
    layer: Any = stack
    while isinstance(layer, gymnasium.Wrapper) and layer is not inner:
        yield layer
        layer = layer.env


def _obstacle(wrapped: AnyEnv, env: AnyEnv) -> str | None:
    """Return why the wrappers around an env cannot be applied to an observation alone, None if they can."""
    layers = list(layers_of(wrapped, env))
    if (layers[-1].env if layers else wrapped) is not env:
        return "is no gymnasium.Wrapper"
    if not all(map(_is_pure, layers)):
        return "may depend on earlier steps or on the env itself"
    if not _fits_in_arrays(env):
        return f"is around an env with {env.observation_space} and {env.action_space}, which are not sent"
    return None


def _fits_in_arrays(env: AnyEnv) -> bool:
    try:
        ObsLayout(env.observation_space)
        ActionLayout(hybrid_rows(env).action_space)
    except DingError:
        return False
    return True


def _is_pure(layer: AnyWrapper) -> bool:
    """Return whether a wrapper's effect on an observation or action depends on nothing else.

    A user's own class declares that by an attribute `is_stateless = True`.
    """
    if isinstance(layer, gym.AddRenderObservation):
        return False
    if isinstance(layer, (gymnasium.ObservationWrapper, gymnasium.ActionWrapper)) and not isinstance(layer, ObsNorm):
        is_of_gymnasium = type(layer).__module__.startswith("gymnasium.")
        return bool(getattr(type(layer), "is_stateless", False)) or (is_of_gymnasium and isinstance(layer, _PURE))
    return isinstance(layer, (ObsNorm, *NO_EFFECT))


def _works_when_fed(spec: Spec, env: AnyEnv, wrapped: AnyEnv) -> bool:
    """Return whether a wrapper works around a stand-in that only returns the observations it is fed.

    It must step what is inside once for each step, reset it once for each reset, and observe no reward; one that
    changes actions must be declared stateless, as it is called twice for each.
    """
    if any(isinstance(layer, gymnasium.ActionWrapper) and not _is_pure(layer) for layer in layers_of(wrapped, env)):
        return False
    fed = FedEnv(env.observation_space, env.action_space, render_mode=getattr(env, "render_mode", None))
    fed.fed = example(env.observation_space)
    try:
        stack = wrap(fed, [spec])
        layout = ObsLayout(stack.observation_space)
        seen = [stack.reset()[0]]
        seen += [stack.step(stack.action_space.sample())[0] for _ in range(_TRIED_STEPS)]
        is_fit = all(
            layout.fault(obs) is None and layout.all_finite(layout.from_batch(stack_obs([obs]))) for obs in seen
        )
    except Exception as error:  # a user's wrapper may raise anything where its env is only a stand-in
        logger.debug("%s does not work around a stand-in: %s", spec, describe_error(error))
        return False
    return is_fit and (fed.num_resets, fed.num_steps) == (1, _TRIED_STEPS)


class WrapperSplit(NamedTuple):
    """Env of a client, and which wrappers of the run the agent and the client apply, the innermost first."""

    observation_space: Space  # of the client's env
    action_space: Space
    render_mode: str | None
    parameter_mask: list[list[float]] | None  # of hybrid actions, where the env declares one
    agent_layers: tuple[WrapperLayer, ...]
    client_layers: tuple[WrapperLayer, ...]

    @property
    def client_wrappers(self) -> tuple[str, ...]:
        """Names of the wrappers that the client applies."""
        return tuple(layer.name for layer in self.client_layers)

    def with_action_rows(self) -> WrapperSplit:
        """Return a split whose clients take hybrid actions as rows of numbers, which travel as one array."""
        return self._replace(action_space=hybrid_rows(self._stand_in()).action_space)

    def bare_stack(self) -> tuple[AnyEnv, FedEnv]:
        """Return the agent's wrappers, without statistics, around a stand-in for the client's env, and the stand-in."""
        fed = self._stand_in()
        return hybrid_rows(wrap(fed, [layer.spec for layer in self.agent_layers if not layer.changes_nothing])), fed

    def _stand_in(self) -> FedEnv:
        return FedEnv(
            self.observation_space,
            self.action_space,
            render_mode=self.render_mode,
            parameter_mask=self.parameter_mask,
        )


class AgentWrappers:
    """Wrappers of a run, applied to clients' observations, and in reverse to the policy's actions.

    Where one of them needs earlier steps, each row of a batch has a stack of wrappers of its own. `statistics` are the
    saved states of the wrappers in a checkpoint, by lane. Raises CheckpointError if they are missing or do not fit.
    """

    def __init__(self, split: WrapperSplit, statistics: Sequence[Sequence[State]] = ()) -> None:
        self._split = split
        self._statistics = statistics
        self.stack, _ = self._new_stack()
        layers = list(layers_of(self.stack))
        self._action_wrappers = [layer for layer in layers if isinstance(layer, gymnasium.ActionWrapper)]
        self._obs_wrappers = [layer for layer in reversed(layers) if isinstance(layer, gymnasium.ObservationWrapper)]
        self._obs_layout = ObsLayout(self.stack.observation_space)
        self._action_layout = ActionLayout(self.stack.action_space)
        self.remembers = any(layer.needs == "steps" for layer in split.agent_layers)
        self._row_stacks: list[tuple[AnyEnv, FedEnv]] = []
        self._row_actions: list[EnvAction] = []  # the last action of each row, as its stack takes it

    def _new_stack(self) -> tuple[AnyEnv, FedEnv]:
        """Return the wrappers, with their statistics, around a stand-in for an env, and the stand-in."""
        stack, fed = self._split.bare_stack()
        if any(self._statistics):
            # States of the client's wrappers and of the env follow in the checkpoint, and are not needed.
            num_own = len(wrapper_states(stack))
            adopt_wrapper_states(stack, [lane[:num_own] for lane in self._statistics])
        elif any(isinstance(layer, ObsNorm) for layer in layers_of(stack)):
            raise CheckpointError(
                "it has no statistics of obs_norm, without which observations cannot be normalised: give a checkpoint "
                "that this run saved."
            )
        return stack, fed

    @property
    def names(self) -> list[str]:
        """Names of the wrappers that change observations or actions, the innermost first."""
        if self.remembers:
            return [layer.name for layer in self._split.agent_layers]
        named = (*self._obs_wrappers, *reversed(self._action_wrappers))
        return [type(layer).__name__ for layer in named if not isinstance(layer, HybridRows)]

    def to_policy(self, rows: Rows, is_first: Array) -> Obs:
        """Return observations [R, ...] as env managers give them to a policy; an episode begins where `is_first`."""
        if self.remembers:
            return self._step_row_stacks(rows, is_first)
        obs: RawBatch = rows.obs
        for layer in self._obs_wrappers:
            # ObsNorm takes a whole batch; other wrappers take one observation at a time.
            is_of_batch = isinstance(layer, ObsNorm)
            obs = layer.observation(obs) if is_of_batch else stack_obs([layer.observation(o) for o in split_obs(obs)])
        return self._obs_layout.from_batch(obs)

    def _step_row_stacks(self, rows: Rows, is_first: Array) -> Obs:
        while len(self._row_stacks) < rows.num:
            self._row_stacks.append(self._new_stack())
            self._row_actions.append(None)
        seen = []
        for row, obs in enumerate(split_obs(rows.obs)):
            stack, fed = self._row_stacks[row]
            fed.fed = obs
            seen.append(stack.reset()[0] if is_first[row] else stack.step(self._row_actions[row])[0])
        return self._obs_layout.from_batch(stack_obs(seen))

    def to_client(self, action: Array) -> EnvAction:
        """Return actions [R, ...] of the policy as the client's env takes them: an array, or one by one.

        Wrappers that remember step with them when the next observations arrive.
        """
        in_env_numbers = self._action_layout.for_envs(action, len(action))
        each = self._action_layout.split(in_env_numbers)
        if self.remembers:
            self._row_actions[: len(each)] = each
        if not self._action_wrappers:
            return in_env_numbers
        for layer in self._action_wrappers:
            each = [layer.action(one) for one in each]
        if isinstance(self._split.action_space, (gymnasium.spaces.Tuple, gymnasium.spaces.Dict)):
            return each
        return stack_obs(each)


def split_obs(obs: RawBatch) -> list[RawBatch]:
    """Return each observation of a batch."""
    if isinstance(obs, Mapping):
        columns = [split_obs(value) for value in obs.values()]
        return [dict(zip(obs, values, strict=True)) for values in zip(*columns, strict=True)]
    return list(obs)


def stack_obs(each: Sequence[RawBatch]) -> RawBatch:
    """Return a batch of observations."""
    if isinstance(each[0], Mapping):
        return {key: stack_obs([one[key] for one in each]) for key in each[0]}
    return np.stack([np.asarray(one) for one in each])
