"""Random actions, which fill a buffer before the first update, and acting in one env, under DI-engine's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from ding_like.data.hybrid_space import HybridSpace
from ding_like.data.modes import CollectMode
from ding_like.data.obs import split_mask
from ding_like.data.rows import DiEngineStyleActor, adapt_collect_mode
from ding_like.errors import ConfigError, SchemaError
from ding_like.policy.di_engine_view import forward_rows
from ding_like.rl_utils.exploration import epsilon_greedy
from ding_like.types import Array, Obs, PolicyLike, State


class RandomActor:
    """Actor that draws actions uniformly from an action space, each lane its own.

    Of a dict observation, the entry `action_mask` [R, A] says which discrete actions are legal; that of a team may be
    [R, N, A]. Raises ConfigError for a space of other kinds, or without bounds.
    """

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self._draw = _drawer(action_space)

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: float | Array
    ) -> dict[str, Array]:
        """Return `action` [R, A...]."""
        return {"action": self._draw(len(lanes), rng, split_mask(obs)[1])}

    def reset(self, lanes: Array | None = None) -> None:
        """Forget nothing: there is no state."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing: there is no state."""


# (rows, rng, action mask or None) -> actions [rows, A...], which count from 0 as policies say them.
_Draw: TypeAlias = Callable[[int, np.random.Generator, "Array | None"], Array]


def _drawer(space: spaces.Space[Any]) -> _Draw:
    if isinstance(space, HybridSpace):
        if not space.is_bounded():
            raise ConfigError(_no_bounds(space))
        return lambda rows, rng, mask: space.draw(rng, rows)
    if isinstance(space, spaces.Discrete):
        return _choices([int(space.n)], shape=())
    if isinstance(space, spaces.MultiDiscrete):
        return _choices(space.nvec.ravel().tolist(), shape=space.shape)
    if isinstance(space, spaces.MultiBinary):
        return _choices([2] * int(np.prod(space.shape)), shape=space.shape)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.integer):
        return lambda rows, rng, mask: rng.integers(
            space.low, space.high, (rows, *space.shape), space.dtype, endpoint=True
        )
    if isinstance(space, spaces.Box) and space.is_bounded():
        return lambda rows, rng, mask: rng.uniform(space.low, space.high, (rows, *space.shape)).astype(space.dtype)
    raise ConfigError(_no_bounds(space))


def _no_bounds(space: spaces.Space[Any]) -> str:
    return f"no random actions for the action space {space}: set policy.random_collect_size=0, or bound the space."


def _choices(sizes: Sequence[int], *, shape: tuple[int, ...]) -> _Draw:
    """Return what draws one number below each size, in `shape`; a mask holds the choices of all sizes in a row."""
    ends = np.cumsum(sizes)

    def draw(rows: int, rng: np.random.Generator, mask: Array | None) -> Array:
        if mask is None:
            drawn = rng.integers(0, sizes, (rows, len(sizes)))
        else:
            anything = np.zeros(rows, np.int64)
            if mask.size != rows * ends[-1]:
                raise SchemaError(
                    f"the action mask has shape {mask.shape}; expected {rows} rows of {ends[-1]} numbers, one for each "
                    "choice of every action"
                )
            factors = zip(sizes, np.split(mask.reshape(rows, ends[-1]), ends[:-1], axis=1), strict=True)
            drawn = np.stack(
                [epsilon_greedy(anything, 1.0, num_actions=n, rng=rng, action_mask=legal) for n, legal in factors],
                axis=1,
            )
        return drawn.reshape(rows, *shape)

    return draw


def random_collect_mode(mode: CollectMode, action_space: spaces.Space[Any]) -> CollectMode:
    """Return `mode` with random actions: rows are made as the policy makes them."""
    return mode._replace(actor=RandomActor(action_space))


class PolicyFactory:
    """Maker of collect modes that act at random, to fill a buffer before the first update."""

    @staticmethod
    def get_random_policy(
        policy: PolicyLike,  # any named tuple of a collect mode, ours or in DI-engine's style
        action_space: spaces.Space[Any] | None = None,
        forward_fn: Callable[..., dict[int, dict[str, Any]]] | None = None,
    ) -> CollectMode:
        """Return the collect mode with actions drawn from `action_space`, or those of `forward_fn({id: obs})`.

        Transitions and rows are made as the policy makes them. Raises ConfigError unless exactly one of both is given,
        and for a space without bounds.
        """
        if (action_space is None) == (forward_fn is None):
            raise ConfigError(
                "get_random_policy needs action_space, or forward_fn for a space that it cannot draw from."
            )
        mode = adapt_collect_mode(policy)
        if forward_fn is not None:
            mode = mode._replace(forward=forward_fn)
            return mode._replace(actor=DiEngineStyleActor(mode))
        assert action_space is not None, "checked above"
        mode = random_collect_mode(mode, action_space)
        return mode._replace(forward=partial(forward_rows, mode.actor))


def get_random_policy(cfg: Any, policy: PolicyLike, env: Any) -> Any:
    """Return `policy`, a collect mode, with actions drawn from `env.action_space`.

    `cfg.policy.transition_with_policy_data` says that rows need what the policy says of its actions: then `policy` is
    returned as it is.
    """
    if cfg.policy.get("transition_with_policy_data", False):
        return policy
    return PolicyFactory.get_random_policy(policy, action_space=env.action_space)


# What an env observes and takes differs from env to env: hence Any.


def single_env_forward_wrapper(forward_fn: Callable[..., Mapping[int, Mapping[str, Any]]]) -> Callable[[Any], Any]:
    """Return a function from one env's observation to its action, for a mode's `forward`, `policy.eval_mode.forward`.

    A discrete action is an int, any other an array. A recurrent policy remembers until its mode's `reset`.
    """

    def forward(obs: Any) -> Any:
        action = np.asarray(forward_fn({0: obs})[0]["action"])
        return action.item() if action.ndim == 0 and action.dtype.kind in "iu" else action

    return forward
