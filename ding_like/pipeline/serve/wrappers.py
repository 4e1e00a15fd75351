"""Split a run's env wrappers between server and client, and apply the server's to observations and actions.

A client sends observations of its own env and receives actions for that env. The server applies those of `env.wrappers`
that need only the observation and saved statistics. A wrapper that needs earlier steps (stacked frames) or the env
itself must run where the env is: at the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import wrappers as gym

from ding_like.envs.factory import make_env
from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.envs.wrappers import adopt_wrapper_states, wrap, wrapper_states
from ding_like.envs.wrappers.normalization import ObsNorm, RewardNorm
from ding_like.envs.wrappers.record_gif import RecordGif
from ding_like.envs.wrappers.returns import EpisodeReturn
from ding_like.errors import CheckpointError, ConfigError, DingError
from ding_like.pipeline.serve.observations import RawBatch, Rows, Space
from ding_like.types import Array, Obs, State

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env
# A wrapper as `env.wrappers` has it: its name, or a dict with its `type`.
Spec = Mapping[str, Any] | str

# Wrappers that change neither observations nor actions.
_NO_EFFECT = (
    *(gym.TimeLimit, gym.OrderEnforcing, gym.PassiveEnvChecker, gym.RecordEpisodeStatistics, gym.RenderCollection),
    *(gym.RecordVideo, gym.HumanRendering, gym.NormalizeReward, gymnasium.RewardWrapper),
    *(EpisodeReturn, RewardNorm, RecordGif),
)
_PURE = (gym.TransformObservation, gym.TransformAction)
_NEEDS_ENV = (gym.AddRenderObservation,)


class WrapperSplit(NamedTuple):
    """Describe a client's env, and which wrappers the server and the client apply."""

    observation_space: Space  # of the client's env
    action_space: Space
    render_mode: str | None
    specs: tuple[Spec, ...]  # of the server's wrappers, the innermost first
    client_wrappers: tuple[str, ...]  # names, the innermost first


def split_wrappers(env_cfg: Mapping[str, Any], *, client_wraps: bool) -> WrapperSplit:
    """Split the wrappers of an env's config by whether a server can apply them; the env is made and closed again.

    Raises ConfigError for a wrapper that it cannot apply, unless `client_wraps`: then the client applies that one and
    those inside it.
    """
    specs: list[Spec] = list(env_cfg.get("wrappers", ()))
    env: Any = make_env({**env_cfg, "wrappers": []})  # Any: a game is no gymnasium.Env
    try:
        if hasattr(env, "num_players"):
            return WrapperSplit(env.observation_space, env.action_space, None, (), ())
        inside: list[tuple[Space, Space]] = [(env.observation_space, env.action_space)]
        reasons: list[str | None] = []
        for spec in specs:
            wrapped = wrap(env, [spec])
            reasons.append(_obstacle(wrapped, env))
            env = wrapped
            inside.append((env.observation_space, env.action_space))
        first = max((i + 1 for i, reason in enumerate(reasons) if reason), default=0)
        if first and not client_wraps:
            told = "; ".join(f"{_name(spec)} {reason}" for spec, reason in zip(specs, reasons, strict=True) if reason)
            raise ConfigError(
                f"env.wrappers of this run cannot all be applied to a single observation: {told}. Start it with "
                f"--client-wraps where clients send what {_name(specs[first - 1])} observes, as {inside[first][0]}, "
                "and step an env that has those wrappers."
            )
        observed, acted = inside[first]
        return WrapperSplit(observed, acted, env.render_mode, tuple(specs[first:]), tuple(map(_name, specs[:first])))
    finally:
        env.close()


class ServerWrappers:
    """Apply a run's wrappers to clients' observations, and in reverse to the policy's actions.

    `statistics` are the saved states of the wrappers in a checkpoint, by lane. Raises CheckpointError if they are
    missing or do not fit.
    """

    def __init__(self, split: WrapperSplit, statistics: Sequence[Sequence[State]] = ()) -> None:
        stack = wrap(_Spaces(split), split.specs)
        own = len(wrapper_states(stack))
        layers = _layers(stack)
        if any(statistics):
            # States of the client's wrappers and of the env follow in the checkpoint, and are not needed.
            adopt_wrapper_states(stack, [lane[:own] for lane in statistics])
        elif any(isinstance(layer, ObsNorm) for layer in layers):
            raise CheckpointError(
                "it has no statistics of obs_norm, without which observations cannot be normalised: give a checkpoint "
                "that this run saved."
            )
        self._action_wrappers = [layer for layer in layers if isinstance(layer, gymnasium.ActionWrapper)]
        self._obs_wrappers = [layer for layer in reversed(layers) if isinstance(layer, gymnasium.ObservationWrapper)]
        self._obs_layout = ObsLayout(stack.observation_space)
        self._action_layout = ActionLayout(stack.action_space)

    @property
    def names(self) -> list[str]:
        """Return the wrappers that change observations or actions, the innermost first."""
        return [type(layer).__name__ for layer in (*self._obs_wrappers, *reversed(self._action_wrappers))]

    def to_policy(self, rows: Rows) -> Obs:
        """Return observations [R, ...] in the form in which env managers give them to a policy."""
        obs: RawBatch = rows.obs
        for layer in self._obs_wrappers:
            # ObsNorm takes a whole batch; other wrappers take one observation at a time.
            is_of_batch = isinstance(layer, ObsNorm)
            obs = layer.observation(obs) if is_of_batch else _stack([layer.observation(o) for o in _split(obs)])
        return self._obs_layout.from_batch(obs)

    def to_client(self, action: Array) -> Array:
        """Return actions [R, ...] of the policy in the form that the client's env takes."""
        taken = self._action_layout.for_envs(action, len(action))
        if not self._action_wrappers:
            return taken
        each = self._action_layout.split(taken)
        for layer in self._action_wrappers:
            each = [layer.action(one) for one in each]
        return np.stack([np.asarray(one) for one in each])


class _Spaces(gymnasium.Env[Any, Any]):
    """Stand in for a client's env: it has its spaces, and is never stepped."""

    def __init__(self, split: WrapperSplit) -> None:
        self.observation_space, self.action_space = split.observation_space, split.action_space
        self.render_mode = split.render_mode


def _obstacle(wrapped: AnyEnv, env: AnyEnv) -> str | None:
    """Return why a server cannot apply the wrappers around an env, None if it can."""
    layer: Any = wrapped
    while layer is not env:
        if not isinstance(layer, gymnasium.Wrapper):
            return "is no gymnasium.Wrapper"
        if not _is_pure(layer):
            return "may depend on earlier steps or on the env itself"
        layer = layer.env
    try:
        ObsLayout(env.observation_space)
        ActionLayout(env.action_space)
    except DingError:
        return f"is around an env with {env.observation_space} and {env.action_space}, which are not sent"
    return None


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
    return isinstance(layer, (ObsNorm, *_NO_EFFECT))


def _layers(stack: AnyEnv) -> list[Any]:
    """Return the wrappers around an env, the outermost first."""
    layers: list[Any] = []
    layer: Any = stack
    while isinstance(layer, gymnasium.Wrapper):
        layers.append(layer)
        layer = layer.env
    return layers


def _name(spec: Spec) -> str:
    return spec if isinstance(spec, str) else str(spec.get("type"))


def _split(obs: RawBatch) -> list[Any]:
    """Return each observation of a batch."""
    if isinstance(obs, dict):
        parts = {key: _split(value) for key, value in obs.items()}
        count = len(next(iter(parts.values())))
        return [{key: values[row] for key, values in parts.items()} for row in range(count)]
    return list(obs)


def _stack(each: Sequence[Any]) -> RawBatch:
    """Return a batch of observations."""
    if isinstance(each[0], dict):
        return {key: _stack([one[key] for one in each]) for key in each[0]}
    return np.stack([np.asarray(one) for one in each])
