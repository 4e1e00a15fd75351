"""Match names of weights across ways of nesting: "0/weight" of a nested dict is "0.weight" of a module."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from ding_like.comm.flat_state import FlatState


def named_like(names: Collection[str], state: Mapping[str, torch.Tensor]) -> FlatState:
    """Return a state renamed to `names` if its own names differ only by "/" for "."; else unchanged.

    Two names that differ only by that are ambiguous: then nothing is renamed.
    """
    if state.keys() == set(names):
        return dict(state)
    wanted = {_joined(name): name for name in names}
    own = {_joined(name): name for name in state}
    if wanted.keys() != own.keys() or len(wanted) != len(names) or len(own) != len(state):
        return dict(state)
    return {wanted[joined]: state[name] for joined, name in own.items()}


def _joined(name: str) -> str:
    return name.replace("/", ".")
