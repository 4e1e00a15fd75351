"""A store, workers and sends that log what is asked of them, the same for both weight updaters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from unittest.mock import patch

import torch
from tensordict import TensorDictBase
from torch import nn
from torch.distributed import DistStoreError
from torchrl.collectors.distributed import DistributedWeightUpdater as TorchRLUpdater

from ding_like.comm import DistributedWeightUpdater as OurUpdater
from ding_like.comm.weight_updater import Push

NUM_WORKERS = 3
_UPDATE = b"update_weights"


class FakeStore:
    """Stand-in for a TCPStore that logs all calls, and answers for the workers.

    `answers` holds by rank what a worker answers to `update_weights`, None for one that never does.
    """

    def __init__(self, log: list[list[Any]], answers: Mapping[int, bytes | None]) -> None:
        self._log = log
        self._answers = answers
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes | str) -> None:
        """Write a value."""
        data = value.encode() if isinstance(value, str) else value
        self._log.append(["set", key, data.decode()])
        self.values[key] = data
        for rank in range(1, NUM_WORKERS + 2):
            if key == f"NODE_{rank}_in" and data == _UPDATE:
                answer = self._answers.get(rank, b"updated")
                if answer is not None:
                    self.values[f"NODE_{rank}_out"] = answer

    def get(self, key: str) -> bytes:
        """Return a value; where there is none, raise what a TCPStore raises when its time is over."""
        found = self.values.get(key)
        self._log.append(["get", key, None if found is None else found.decode()])
        if found is None:
            raise DistStoreError(f"wait timeout after 10000ms, keys: /{key}")
        return found

    def delete_key(self, key: str) -> bool:
        """Delete a key; return whether there was one."""
        self._log.append(["delete_key", key, None])
        return self.values.pop(key, None) is not None


class Updater(Protocol):
    """Name what cases call; both updaters have all of it."""

    push_weights: Callable[..., Any]


class Side:
    """Factory of one library's updaters that logs what they do."""

    name: str

    def __init__(self) -> None:
        self.log: list[list[Any]] = []

    def store(self, answers: Mapping[int, bytes | None] | None = None) -> FakeStore:
        """Return a store."""
        return FakeStore(self.log, answers or {})

    def make(self, store: Any, weights: Any, num_workers: int = NUM_WORKERS, *, sync: bool = True) -> Any:
        """Return an updater."""
        raise NotImplementedError

    def settle(self, returned: Any) -> Any:
        """Wait for what a push that is not synchronous has returned."""
        return returned


class TorchRL(Side):
    """Log what TorchRL's updater does."""

    name = "torchrl"

    def make(self, store: Any, weights: Any, num_workers: int = NUM_WORKERS, *, sync: bool = True) -> Any:
        return TorchRLUpdater(store=store, policy_weights=weights, num_workers=num_workers, sync=sync)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Log what TensorDicts send, in place of sending."""
        log = self.log

        def send(self: TensorDictBase, dst: int, **_: Any) -> None:
            log.append(["send", dst, names_of(self)])

        def isend(self: TensorDictBase, dst: int, **_: Any) -> list[Any]:
            log.append(["isend", dst, names_of(self)])
            return []

        with patch.object(TensorDictBase, "send", send), patch.object(TensorDictBase, "isend", isend):
            yield


class _LoggedUpdater(OurUpdater):
    """Our updater, which logs what it sends."""

    def __init__(self, log: list[list[Any]], *args: Any, **kwargs: Any) -> None:
        self._log = log
        super().__init__(*args, **kwargs)

    def _send_weights(self, rank: int, push: Push) -> None:
        self._log.append(["send", rank, sorted(name.replace("/", ".") for name in push.weights.state)])


class Ours(Side):
    """Log what our updater does."""

    name = "ours"

    def make(self, store: Any, weights: Any, num_workers: int = NUM_WORKERS, *, sync: bool = True) -> Any:
        return _LoggedUpdater(self.log, store, weights, num_workers, sync, timeout_s=2.0)

    @contextmanager
    def watched(self) -> Iterator[None]:
        yield

    def settle(self, returned: Any) -> Any:
        if returned is not None and hasattr(returned, "wait"):
            returned.wait(5.0)
            return "a handle"
        return returned


def names_of(weights: Any) -> list[str]:
    """Return the names of the tensors of a TensorDict, joined by dots."""
    keys = weights.keys(include_nested=True, leaves_only=True)
    return sorted(key if isinstance(key, str) else ".".join(key) for key in keys)


class Collector:
    """Log that its version is increased."""

    def __init__(self, log: list[list[Any]], name: str = "collector") -> None:
        self._log = log
        self._name = name

    def increment_version(self) -> None:
        """Count a version."""
        self._log.append(["collector", self._name, "increment_version"])


def make_module() -> nn.Module:
    """Return a small module."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).requires_grad_(False)
