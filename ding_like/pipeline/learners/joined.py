"""Join a policy to a group of learners: its share, its gradients, the first learner's state, and whether all agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding_like.comm.flat_state import FlatState
from ding_like.comm.learner_group import GroupReducer, LearnerGroup
from ding_like.errors import CommError, ConfigError, TrainingError
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from ding_like.types import State


def join_policy(group: LearnerGroup, policy: Policy) -> GroupReducer:
    """Have a policy learn from its share of each batch; return what averages its gradients over the group.

    Raises ConfigError for a policy that does not say where its gradients are.
    """
    vectors = policy.grad_vectors()
    if not vectors:
        raise ConfigError(
            f"{type(policy).__name__} does not say where its gradients are; several learners train policies with "
            "grad() and apply() only. Start one learner."
        )
    policy.set_share(Share(group.rank, group.world_size))
    return GroupReducer(group, vectors, weight=policy.grad_weight)


def share_state(group: LearnerGroup, state: State | None = None) -> State:
    """Return the first learner's nested state, such as a learn mode's: tensors exactly, the rest as JSON.

    Raises CommError for what is neither, and for a state in a network's bytes that is not described.
    """
    flat: FlatState = {}
    described = _describe(state, "", flat) if group.rank == 0 else None
    described = group.broadcast_json(described)
    flat = group.broadcast_state(flat if group.rank == 0 else None)
    restored: State = _restore(described, flat)
    return restored


def pack_learn_state(state: State) -> tuple[Any, FlatState]:  # Any: of JSON
    """Return a learn mode's state as (JSON that describes it, its tensors by name), which `restored` takes."""
    flat: FlatState = {}
    return _describe(state, "", flat), flat


def restored(described: Any, flat: FlatState) -> State:  # Any: of JSON
    """Return the state that `pack_learn_state` was given."""
    state: State = _restore(described, flat)
    return state


class EqualityCheck:
    """Check every `every` updates that all learners have the same parameters, bit for bit.

    They take the same steps on the same averages, so that a difference is a fault: of a machine, of a library that
    computes otherwise there, or of a config that is not the same for all.
    """

    def __init__(self, group: LearnerGroup, policy: Policy, *, every: int = 1000) -> None:
        if every < 1:
            raise ConfigError(f"the learners are compared every {every} updates; give at least 1.")
        self._group = group
        self._policy = policy
        self._every = every
        self._compared = 0

    def is_due(self, train_iter: int) -> bool:
        """Tell whether `every` updates have passed since the last comparison, or the next multiple has been reached."""
        return train_iter // self._every != self._compared // self._every

    def check(self, train_iter: int) -> None:
        """Compare now; all learners call it after the same update. Raises TrainingError that names who differs."""
        self._compared = train_iter
        state, flat = self._policy.learn_mode.state_dict(), FlatState()
        _describe(state.get("model", state), "", flat)
        differing = self._group.differing(flat[name] for name in sorted(flat))
        if differing:
            ranks = ", ".join(f"rank {rank}" for rank in differing)
            raise TrainingError(
                f"after update {train_iter:,} the parameters of learner {ranks} differ from those of the first: what "
                "was learned since the last check is not what one learner would have. Go on from an earlier "
                "checkpoint, and see that all learners have the same config, libraries and kind of processor."
            )


def _describe(value: Any, name: str, flat: FlatState) -> list[Any]:  # Any: of a nested state; of JSON
    """Return a node [kind, what] of JSON for a value, and put its tensors into `flat`."""
    if isinstance(value, torch.Tensor):
        flat[name] = value.detach()
        return ["tensor", name]
    if isinstance(value, (np.ndarray, np.generic)):
        flat[name] = torch.from_numpy(np.array(value))
        return ["array", name]
    if isinstance(value, Mapping):
        return ["dict", [[key, _describe(each, f"{name}/{key}", flat)] for key, each in value.items()]]
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, [_describe(each, f"{name}/{number}", flat) for number, each in enumerate(value)]]
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    raise CommError(f"the learners' state has a {type(value).__name__} at {name!r}, which cannot travel.")


def _restore(node: Any, flat: FlatState) -> Any:  # Any: see `_describe`
    kind, what = node
    if kind == "tensor":
        return flat[what]
    if kind == "array":
        return flat[what].numpy()
    if kind == "dict":
        return {key: _restore(each, flat) for key, each in what}
    if kind in ("list", "tuple"):
        members = [_restore(each, flat) for each in what]
        return tuple(members) if kind == "tuple" else members
    return what
