"""Match the names of weights that were nested another way: "0/weight" of a nested dict is "0.weight" of a module."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from ding_like.comm.flat_state import FlatState


def named_like(names: Collection[str], state: Mapping[str, torch.Tensor]) -> FlatState:
    """Return a state under `names`, if its own differ from them by "/" for "." alone; else under its own.

    Where two names differ by that alone, nothing is renamed: what fits them is not known.
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
