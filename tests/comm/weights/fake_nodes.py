"""Stand for a store of torch.distributed with scripted worker ranks behind it, and a clock that only waits move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

# What a rank answers to `update_weights`: a status, or None for nothing.
Answer = Callable[[], "bytes | None"]


class FakeNodes:
    """Answer each `update_weights` at once, as `answers` say (b"updated" for ranks that they lack).

    `events` are the calls on words and answers, in order: ("set", "NODE_1_in"), ("get", "NODE_1_out"). A wait for what
    is not there moves `now` by its timeout, as a real one would.
    """

    def __init__(self, answers: dict[int, bytes | None] | None = None) -> None:
        self.values: dict[str, bytes] = {}
        self.events: list[tuple[str, str]] = []
        self.answers = answers or {}
        self.now = 0.0
        self.lost_at: str | None = None  # setting this key finds the store lost

    def set(self, key: str, value: bytes) -> None:
        if key == self.lost_at:
            raise RuntimeError("Connection reset by peer")
        self._note("set", key)
        self.values[key] = value
        if key.endswith("_in") and value == b"update_weights":
            rank = int(key.split("_")[1])
            answer = self.answers.get(rank, b"updated")
            if answer is not None:
                self.values[f"NODE_{rank}_out"] = answer

    def get(self, key: str) -> bytes:
        self._note("get", key)
        return self.values[key]

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self.values for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        if not self.check(keys):
            self.now += timeout.total_seconds()
            raise RuntimeError(f"wait timeout after {timeout.total_seconds()} s, keys: {keys}")

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None

    def _note(self, call: str, key: str) -> None:
        if key.endswith(("_in", "_out")):
            self.events.append((call, key))

    def told(self) -> list[int]:
        """Return the ranks that were told, in order."""
        return [int(key.split("_")[1]) for call, key in self.events if call == "set" and key.endswith("_in")]

    def use_clock(self, monkeypatch: Any) -> None:  # Any: pytest.MonkeyPatch has no public home
        """Have a push look at this clock."""
        monkeypatch.setattr("ding_like.comm.weight_updater.monotonic", lambda: self.now)
