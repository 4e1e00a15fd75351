"""Tell of each of a run's env wrappers what it needs where there is no env: nothing, earlier steps, or the env itself.

Whoever acts for an env elsewhere is given observations alone. A wrapper that needs the observation and saved statistics
is applied to any batch; one that needs earlier steps too (stacked frames) where these are remembered; one that needs
the env itself must run where the env is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium import wrappers as gym

from ding_like.agent.observations import example
from ding_like.data.space_json import Space
from ding_like.envs.hybrid import hybrid_rows
from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.envs.wrappers import find_wrapper, wrap
from ding_like.envs.wrappers.common import EpisodeReturn
from ding_like.envs.wrappers.normalization import ObsNorm, RewardNorm
from ding_like.envs.wrappers.record_gif import RecordGif
from ding_like.errors import DingError
from ding_like.utils.imports import describe_error

logger = logging.getLogger(__name__)

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env
# A wrapper as `env.wrappers` has it: its name, or a dict with its `type`.
Spec = Mapping[str, Any] | str
Needs = Literal["nothing", "steps", "env"]

# Wrappers that change neither observations nor actions.
NO_EFFECT = (
    *(gym.TimeLimit, gym.OrderEnforcing, gym.PassiveEnvChecker, gym.RecordEpisodeStatistics, gym.RenderCollection),
    *(gym.RecordVideo, gym.HumanRendering, gym.NormalizeReward, gymnasium.RewardWrapper),
    *(EpisodeReturn, RewardNorm, RecordGif),
)
_PURE = (gym.TransformObservation, gym.TransformAction)
_NEEDS_ENV = (gym.AddRenderObservation,)
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


class FedEnv(gymnasium.Env[Any, Any]):
    """Stand-in for a client's env: it has its spaces, and observes what it is fed.

    Rewards are NaN, so that a wrapper whose observations depend on them is found out.
    """

    def __init__(
        self, observed: Space, acted: Space, *, render_mode: str | None = None, parameter_mask: Any = None
    ) -> None:
        self.observation_space, self.action_space = observed, acted
        self.render_mode = render_mode
        if parameter_mask is not None:
            self.parameter_mask = parameter_mask
        self.fed: Any = None  # what the next reset or step observes
        self.num_resets = self.num_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.num_resets += 1
        return self.fed, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.num_steps += 1
        return self.fed, float("nan"), False, False, {}


def describe_wrappers(env: AnyEnv, specs: Sequence[Spec]) -> tuple[AnyEnv, tuple[WrapperLayer, ...]]:
    """Return an env inside these wrappers, the first one innermost, and what each of them needs."""
    described: list[WrapperLayer] = []
    for spec in specs:
        wrapped = wrap(env, [spec])
        why, needs = _obstacle(wrapped, env), "nothing"
        if why is not None:
            needs = "steps" if _is_sent(env) and _works_when_fed(spec, env, wrapped) else "env"
        env = wrapped
        described.append(WrapperLayer(spec, needs, why, env.observation_space, env.action_space))  # type: ignore[arg-type]
    return env, tuple(described)


def changes_nothing(spec: Spec) -> bool:
    """Tell whether a wrapper changes neither observations nor actions, and knows nothing that is saved."""
    found = find_wrapper(spec if isinstance(spec, str) else spec.get("type"))
    is_class = isinstance(found, type) and issubclass(found, NO_EFFECT)
    return is_class and not callable(getattr(found, "state_dict", None))


def layers_of(stack: AnyEnv) -> Iterator[Any]:
    """Yield the wrappers around an env, the outermost first."""
    layer: Any = stack
    while isinstance(layer, gymnasium.Wrapper):
        yield layer
        layer = layer.env


def _obstacle(wrapped: AnyEnv, env: AnyEnv) -> str | None:
    """Return why the wrappers around an env cannot be applied to an observation alone, None if they can."""
    layer: Any = wrapped
    while layer is not env:
        if not isinstance(layer, gymnasium.Wrapper):
            return "is no gymnasium.Wrapper"
        if not _is_pure(layer):
            return "may depend on earlier steps or on the env itself"
        layer = layer.env
    if not _is_sent(env):
        return f"is around an env with {env.observation_space} and {env.action_space}, which are not sent"
    return None


def _is_sent(env: AnyEnv) -> bool:
    """Tell whether what an env observes and takes fits in arrays."""
    try:
        ObsLayout(env.observation_space)
        ActionLayout(hybrid_rows(env).action_space)
    except DingError:
        return False
    return True


def _is_pure(layer: gymnasium.Wrapper[Any, Any, Any, Any]) -> bool:
    """Tell whether a wrapper's effect on an observation or action depends on nothing else.

    A user's own class declares that by an attribute `is_stateless = True`.
    """
    if isinstance(layer, _NEEDS_ENV):
        return False
    is_of_gymnasium = type(layer).__module__.startswith("gymnasium.")
    if isinstance(layer, (gymnasium.ObservationWrapper, gymnasium.ActionWrapper)) and not isinstance(layer, ObsNorm):
        own = bool(getattr(type(layer), "is_stateless", False))
        return own or (is_of_gymnasium and isinstance(layer, _PURE))
    return isinstance(layer, (ObsNorm, *NO_EFFECT))


def _works_when_fed(spec: Spec, env: AnyEnv, wrapped: AnyEnv) -> bool:
    """Tell whether a wrapper does its work around a stand-in that only hands on observations.

    It must step what is inside once for each step, reset it once for each reset, and observe no reward; one that
    changes actions must say that it is stateless, as it is asked twice for each.
    """
    if any(isinstance(layer, gymnasium.ActionWrapper) and not _is_pure(layer) for layer in _own_layers(wrapped, env)):
        return False
    fed = FedEnv(env.observation_space, env.action_space, render_mode=getattr(env, "render_mode", None))
    fed.fed = example(env.observation_space)
    try:
        stack = wrap(fed, [spec])
        layout = ObsLayout(stack.observation_space)
        seen = [stack.reset()[0]]
        seen += [stack.step(stack.action_space.sample())[0] for _ in range(_TRIED_STEPS)]
        is_fit = all(layout.fault(obs) is None and layout.all_finite(layout.from_batch(_batched(obs))) for obs in seen)
    except Exception as error:  # a user's wrapper may raise anything where its env is only a stand-in
        logger.debug("%s does not work around a stand-in: %s", spec, describe_error(error))
        return False
    return is_fit and (fed.num_resets, fed.num_steps) == (1, _TRIED_STEPS)


def _own_layers(wrapped: AnyEnv, env: AnyEnv) -> Iterator[Any]:
    for layer in layers_of(wrapped):
        if layer is env:
            return
        yield layer


def _batched(obs: Any) -> Any:
    return {key: _batched(value) for key, value in obs.items()} if isinstance(obs, dict) else np.asarray(obs)[None]
