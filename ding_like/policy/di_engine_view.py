"""Derive DI-engine's row functions from an actor and `segment`, or name those of a policy in DI-engine's style.

DI-engine calls a policy with dicts by env id and lists of transitions: `forward({id: obs})`,
`process_transition(obs, output, timestep)`, `get_train_sample(list)`. What they hold is the
env's and the policy's own, and a policy in DI-engine's style has no type here: hence Any.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.modes import OUR_FIELDS, CollectMode, EvalMode, LearnMode
from ding_like.data.obs import nest
from ding_like.data.rollout import Rollout
from ding_like.data.rows import as_batch
from ding_like.errors import SchemaError
from ding_like.types import Actor, PolicyLike


def _fields_of_di_engine(name: str, mode: Any) -> Any:
    """Return a named tuple type of DI-engine's fields of a mode; Any, as a checker cannot read computed fields."""
    return namedtuple(name, [field for field in mode._fields if field not in OUR_FIELDS])


DiEngineLearnMode = _fields_of_di_engine("DiEngineLearnMode", LearnMode)
DiEngineCollectMode = _fields_of_di_engine("DiEngineCollectMode", CollectMode)
DiEngineEvalMode = _fields_of_di_engine("DiEngineEvalMode", EvalMode)


def overrides(policy: PolicyLike, name: str) -> bool:
    """Tell whether a policy brings a method of DI-engine's style of its own."""
    return callable(getattr(policy, name, None))


def di_engine_learn_mode(policy: PolicyLike) -> Any:
    """Return DI-engine's learn mode of a policy that has `_forward_learn`."""
    from ding_like.policy import own_state  # here: actors of mode seed import this module without torch

    return DiEngineLearnMode(
        forward=policy._forward_learn,
        reset=policy._reset_learn,
        info=policy._information,
        monitor_vars=policy._monitor_vars_learn,
        get_attribute=policy.get_attribute,
        set_attribute=policy.set_attribute,
        state_dict=own_state.saver(policy),
        load_state_dict=partial(own_state.load, policy),
    )


def act_fields(policy: PolicyLike) -> dict[str, Any]:
    """Return the fields that a collect mode and an eval mode have in common."""
    return dict(
        get_attribute=policy.get_attribute,
        set_attribute=policy.set_attribute,
        state_dict=policy._state_dict_act,
        load_state_dict=policy._load_state_dict_act,
    )


def di_engine_collect_mode(policy: PolicyLike) -> Any:
    """Return DI-engine's collect mode of a policy that has `_forward_collect` and `_process_transition`."""
    return DiEngineCollectMode(
        forward=policy._forward_collect,
        process_transition=policy._process_transition,
        get_train_sample=getattr(policy, "_get_train_sample", lambda rows: rows),
        reset=getattr(policy, "_reset_collect", _reset_nothing),
        **act_fields(policy),
    )


def di_engine_eval_mode(policy: PolicyLike) -> Any:
    """Return DI-engine's eval mode of a policy that has `_forward_eval`."""
    return DiEngineEvalMode(
        forward=policy._forward_eval,
        reset=getattr(policy, "_reset_eval", _reset_nothing),
        **act_fields(policy),
    )


def _reset_nothing(data_id: Any = None) -> None:
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
