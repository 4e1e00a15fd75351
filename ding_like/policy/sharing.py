"""What several learners, or gradients that are computed in one process and applied in another, need of a policy."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ding_like.errors import ConfigError
from ding_like.types import PolicyLike, State


class Share(NamedTuple):
    """Place of a learner, `rank` of `num_learners` that act as one; alone by default."""

    rank: int = 0
    num_learners: int = 1

    def of(self, num_rows: int) -> slice:
        """Return this learner's rows of so many; all of them where there are fewer rows than learners."""
        if num_rows < self.num_learners:
            return slice(0, num_rows)
        return slice(num_rows * self.rank // self.num_learners, num_rows * (self.rank + 1) // self.num_learners)

    def weight(self, num_rows: int) -> float:
        """Return what the mean over this learner's rows counts in the mean over all."""
        rows = self.of(num_rows)
        return 1.0 / self.num_learners if num_rows < self.num_learners else (rows.stop - rows.start) / num_rows


class GradNoise:
    """Random numbers of gradients, equal ones until the update that they belong to has been applied.

    The generator is its own: other code may draw from torch's global one between two updates.

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


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two nested states have equal values, bit by bit."""
    if isinstance(one, Mapping):
        is_alike = isinstance(other, Mapping) and one.keys() == other.keys()
        return is_alike and all(is_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, (list, tuple)):
        is_alike = type(one) is type(other) and len(one) == len(other)
        return is_alike and all(map(is_equal, one, other))
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def copied(value: Any) -> Any:
    """Return a copy of a nested state."""
    if isinstance(value, Mapping):
        return {name: copied(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        items = [copied(each) for each in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.detach().clone() if isinstance(value, Tensor) else value


def check_sharing(policy: PolicyLike) -> None:
    """Raise ConfigError, with the reason, for a policy whose gradients another process cannot apply."""
    name = f"policy '{policy.cfg.get('type') or type(policy).__name__}'"
    if callable(getattr(policy, "_forward_learn", None)):
        raise ConfigError(
            f"{name} learns in DI-engine's style (_forward_learn), which gives no gradients that another process could "
            "apply: give it grad() and apply(), or compute gradients centrally (one gradient worker)."
        )
    if not policy.grad_vectors():
        raise ConfigError(
            f"{name} does not say where its gradients are (grad_vectors): compute gradients centrally (one gradient "
            "worker)."
        )


def mean_gradient(gradients: Sequence[State]) -> State:
    """Return the mean of what several policies' `gradient` returned."""
    share, vectors = 1.0 / len(gradients), {}
    for name, first in gradients[0]["vectors"].items():
        vectors[name] = first * share
        for gradient in gradients[1:]:
            vectors[name].add_(gradient["vectors"][name], alpha=share)
    return {"vectors": vectors, "moves": gradients[0]["moves"]}


def weaken(policy: PolicyLike, gradient: State, factor: float) -> State:
    """Return a gradient that counts only a share `factor`; what else it says of an update stays as it is."""
    num_gradients = len(list(policy._optimizers()))
    vectors = {
        name: vector * factor if int(name) < num_gradients else vector for name, vector in gradient["vectors"].items()
    }
    return {**gradient, "vectors": vectors}
