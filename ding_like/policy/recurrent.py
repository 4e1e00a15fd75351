"""Act with a recurrent network: a `Forward` whose state is columns that go in and come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ding_like.data.obs import map_obs
from ding_like.policy.forward import to_device
from ding_like.types import Array, Obs

# (observations [B, T, O...] or a dict of them, state [B, S...] by name) -> (output [B, T, ...], state behind the last
# step). Any: a tensor or a dict of them, as the network takes it.
RunSequence = Callable[[Any, Mapping[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]


class RecurrentForward:
    """Be the `Forward` of a recurrent network on a device of this process.

    `run` is the network's own method over sequences; here every row is a sequence of one step. `initial_state` is the
    state before an episode, [S...] by name.
    """

    def __init__(self, run: RunSequence, initial_state: Mapping[str, Array], device: torch.device) -> None:
        self._run = run
        self.initial_state: Mapping[str, Array] = dict(initial_state)
        self._device = device

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], new state [R, S...]) for observations [R, O...] and the state before them."""
        with torch.no_grad():
            steps = map_obs(lambda part: part.unsqueeze(1), to_device(obs, self._device))
            output, after = self._run(steps, to_device(dict(state), self._device))
        return output[:, 0].cpu().numpy(), {name: column.cpu().numpy() for name, column in after.items()}

    # Any: a tensor or a dict of them, as the network takes it.
    def run_tensors(self, obs: Any, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a call does, of tensors: agents are exported with it."""
        output, after = self._run(map_obs(lambda part: part.unsqueeze(1), obs), state)
        return output[:, 0], after
