"""Run and act by networks that take noise: exploration by noisy networks (Fortunato et al. 2018).

The actor draws the noise, of its own for each lane and step, and gives it to the forward pass as a column `noise`
[R, P]. So `Forward` draws nothing here either, and rows of several actors may go through it together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ding_like.policy.choose import Choose
from ding_like.policy.forward import ForwardActor, NetworkForward, to_device
from ding_like.rl_utils.exploration import factorised_noise
from ding_like.types import Array, Forward, Obs

if TYPE_CHECKING:  # actors have no torch: what needs it imports it
    from torch import Tensor

_NO_STATE: dict[str, Array] = {}


class NoisyForward(NetworkForward):
    """Be the `Forward` of a noisy network: under the `noise` [R, P] that the state has, else by its mean weights.

    `run` is the network's own method, from (observations, noise or None) to a tensor; the rest is as in NetworkForward.
    """

    # Any: a tensor or a dict of them, as the network takes it.
    _run: Callable[[Any, Tensor | None], Tensor]  # type: ignore[assignment]

    def __call__(self, obs: Obs, state: Mapping[str, Array] = _NO_STATE) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], no state) for observations [R, O...], or a dict of them, and `noise`."""
        return self.array(obs, state.get("noise")), _NO_STATE

    def array(self, obs: Obs, noise: Array | None = None) -> Array:
        """Return the output [R, ...] on the host, under one noise for all rows [P] or one for each [R, P]."""
        if self._fast is not None and not isinstance(obs, dict):
            return self._fast(obs, noise)
        import torch

        output: Array = self.tensor(obs, None if noise is None else torch.from_numpy(noise)).cpu().numpy()
        return output

    def tensor(self, obs: Obs | Tensor | dict[str, Tensor], noise: Tensor | None = None) -> Tensor:
        """Return the output [R, ...] on the network's device."""
        import torch

        if self._fast is not None and not isinstance(obs, dict):
            rows = obs.numpy() if isinstance(obs, torch.Tensor) else obs
            return torch.from_numpy(self._fast(rows, None if noise is None else noise.numpy()))
        with torch.no_grad():
            return self._run(to_device(obs, self._device), None if noise is None else noise.to(self._device))

    # Any: a tensor or a dict of them, as the network takes it.
    def run_tensors(self, obs: Any, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return self._run(obs, None), {}


class NoisyActor(ForwardActor):
    """Act under noise that is drawn for each lane in each step."""

    def __init__(self, forward: Forward, choose: Choose, *, noise_size: int) -> None:
        super().__init__(forward, choose)
        self._noise_size = noise_size

    def _columns(self, num_rows: int, rng: np.random.Generator) -> Mapping[str, Array]:
        return {"noise": factorised_noise(num_rows, self._noise_size, rng=rng)}
