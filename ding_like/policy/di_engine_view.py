"""DI-engine's view of a policy: its row functions, derived from an actor and `segment`, and its random actions.

DI-engine calls a policy with dicts by env id and lists of transitions: `forward({id: obs})`,
`process_transition(obs, output, timestep)`, `get_train_sample(list)`. What they hold is the env's and the policy's own,
and a policy in DI-engine's style has no type here: hence Any. Random actions fill a buffer before the first update.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from ding_like.data.batch import TransitionBatch, nest, split_mask
from ding_like.data.rollout import Rollout
from ding_like.data.rows import (
    OUR_FIELDS,
    CollectMode,
    DiEngineStyleActor,
    EvalMode,
    LearnMode,
    adapt_collect_mode,
    as_batch,
)
from ding_like.data.spaces import HybridSpace
from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.exploration import epsilon_greedy
from ding_like.types import Actor, Array, Obs, PolicyLike, State


def _fields_of_di_engine(name: str, mode: Any) -> Any:
    """Return a named tuple type of DI-engine's fields of a mode; Any, as a checker cannot read computed fields."""
    return namedtuple(name, [field for field in mode._fields if field not in OUR_FIELDS])


DiEngineLearnMode = _fields_of_di_engine("DiEngineLearnMode", LearnMode)
DiEngineCollectMode = _fields_of_di_engine("DiEngineCollectMode", CollectMode)
DiEngineEvalMode = _fields_of_di_engine("DiEngineEvalMode", EvalMode)


def reset_nothing(data_id: Any = None) -> None:
    """Forget nothing: the policy keeps no state per env."""


def forward_rows(actor: Actor, data: Mapping[int, Any], **setting: Any) -> dict[int, dict[str, Any]]:
    """Act for `{id: obs}` and return `{id: {'action': ...}}`; exploration is drawn from a fixed generator."""
    rows = as_batch([{"obs": np.asarray(obs) if not isinstance(obs, Mapping) else obs} for obs in data.values()])
    if rows is None:
        raise SchemaError("forward needs {id: observation} with observations of one shape.")
    obs = rows["obs"] if "obs" in rows.columns else {k.removeprefix("obs/"): v for k, v in rows.columns.items()}
    lanes = np.array(list(data), np.int64)
    columns = actor.act(obs, lanes=lanes, is_first=np.zeros(len(lanes), bool), rng=_fixed_rng, **setting)
    return {int(lane): nest({name: column[i] for name, column in columns.items()}) for i, lane in enumerate(lanes)}


# DI-engine's `forward` has no generator to pass; ours are passed in by collectors and evaluators.
_fixed_rng = np.random.default_rng(0)


def process_transition(obs: Any, policy_output: Mapping[str, Any], timestep: Any) -> dict[str, Any]:
    """Return one transition of an observation, what the actor said and what the env answered.

    An episode that `info["TimeLimit.truncated"]` marks as cut by a time limit is truncated, any other that is done has
    terminated.
    """
    is_done = bool(timestep.done)
    truncated = is_done and bool((getattr(timestep, "info", None) or {}).get("TimeLimit.truncated", False))
    return {
        "obs": obs,
        **policy_output,
        "next_obs": timestep.obs,
        "reward": float(np.asarray(timestep.reward).item()),
        "done": is_done,
        "terminated": is_done and not truncated,
        "truncated": truncated,
    }


def get_train_sample(policy: PolicyLike, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the training rows that `segment` makes of one lane's transitions."""
    batch = as_batch(rows)
    if batch is None:
        raise SchemaError("get_train_sample needs transitions of equal keys and shapes.")
    rollout = Rollout(1, capacity=len(batch))
    zeros = np.zeros(len(batch), np.int64)
    rollout.append({**batch.columns, "lane": zeros})
    rollout.is_rectangular = True  # one lane in order
    samples: TransitionBatch = policy.segment(rollout)[0]
    return samples.to_list()


def forward_learn(policy: PolicyLike, data: Any, **kwargs: Any) -> Any:
    """Train on a list of rows or a batch and return a dict of floats, or a list of them for several minibatches.

    `kwargs` are passed to the policy's `grad`.
    """
    batch = as_batch(data)
    if batch is None:
        raise SchemaError("forward needs transitions of equal keys and shapes.")
    results = []
    for minibatch in policy.minibatches(batch, _fixed_rng):
        info, priority = policy.grad(minibatch, **kwargs)
        policy.apply()
        result = {name: float(np.asarray(value).mean()) for name, value in info.items()}
        results.append(result if priority is None else {**result, "priority": np.asarray(priority).tolist()})
    return results[0] if len(results) == 1 else results


def reset_actor(actor: Actor, data_id: Sequence[int] | None = None) -> None:
    """Forget the recurrent state of these ids, or of all."""
    actor.reset(None if data_id is None else np.array(data_id, np.int64))


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
