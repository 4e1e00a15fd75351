"""Draw the random numbers of a gradient: equal ones until the update that they belong to has been applied."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor


class GradNoise:
    """Draw from a generator of its own: anyone may draw from torch's global one between two updates.

    `begin` starts an update where the last `commit` ended, so that a gradient depends on `state` alone: `grad` calls
    it, and `apply` calls `commit`. A process that only applies takes over `drawn` of the one that drew.
    """

    def __init__(self, device: torch.device) -> None:
        """Seed the generator by torch's global one."""
        self._device = device
        self._generator = torch.Generator(device)
        self._generator.manual_seed(int(torch.randint(2**62, ())))
        self._state = self._generator.get_state()
        self._num_bytes = self._state.numel()
        self._has_drawn = False

    @property
    def state(self) -> Tensor:
        """Return where the next update begins, uint8 [N]; a fresh tensor for each update."""
        return self._state

    @property
    def drawn(self) -> Tensor:
        """Return where the update under way ends, uint8 [N]."""
        return self._generator.get_state() if self._has_drawn else self._state

    def begin(self) -> None:
        """Begin the draws of an update, afresh if they were begun before."""
        if self._has_drawn:
            self.load(self._state)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Return standard normal numbers in `shape`."""
        self._has_drawn = True
        return torch.randn(shape, generator=self._generator, device=self._device)

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        """Return numbers in [0, 1) in `shape`, each as likely as another."""
        self._has_drawn = True
        return torch.rand(shape, generator=self._generator, device=self._device)

    def commit(self) -> None:
        """Begin the next update where this one ended."""
        self._state, self._has_drawn = self.drawn, False

    def load(self, state: Tensor) -> None:
        """Begin the next update at `state`."""
        self._set(state)
        self._state, self._has_drawn = state, False

    def load_drawn(self, state: Tensor) -> None:
        """Let the update under way end at `state`, which another process's `drawn` was."""
        self._set(state)
        self._has_drawn = True

    def _set(self, state: Tensor) -> None:
        """Let the generator be in a state; one of another kind of device, whose states have another size, seeds it."""
        state = state.cpu()
        if state.numel() == self._num_bytes:
            self._generator.set_state(state)
        else:
            self._generator.manual_seed(zlib.crc32(state.numpy().data))
