"""Subclasses of the documented workers, named in a config: they count their calls in a file that DING_CALLS names."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from ding_like.pipeline.ray import CWorker, GWorker, UWorker


def note(name: str, where: str) -> None:
    with open(os.environ["DING_CALLS"], "a") as file:  # one short line: whole, whichever process appends
        file.write(f"{name} {where} {os.getpid()}\n")


class CountingCWorker(CWorker):
    def collect_data(self, *args: Any, **kwargs: Any) -> Any:
        note("CWorker.collect_data", f"{self.index_parent}/{self.index_worker}")
        return super().collect_data(*args, **kwargs)

    def set_weights(self, actor_weights: Any) -> None:
        note("CWorker.set_weights", f"{self.index_parent}/{self.index_worker}")
        super().set_weights(actor_weights)


class CountingGWorker(GWorker):
    def __init__(self, index_worker: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(index_worker, *args, **kwargs)
        for owner, name in ((self, "get_data"), (self, "get_grads"), (self, "apply_gradients"), (self, "set_weights")):
            self._count(owner, name, f"GWorker.{name}")
        self._count(self.collector, "step", "CollectorThread.step")

    def _count(self, owner: Any, name: str, noted: str) -> None:
        method = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            note(noted, str(self.index_worker))
            return method(*args, **kwargs)

        setattr(owner, name, counted)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        note("GWorker.step", str(self.index_worker))
        return super().step(*args, **kwargs)


class CountingUWorker(UWorker):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        step = self.updater.step

        def counted() -> Any:
            note("UpdaterThread.step", "0")
            return step()

        self.updater.step = counted  # type: ignore[method-assign]

    def step(self) -> Any:
        note("UWorker.step", "0")
        return super().step()


class DoublingCWorker(CWorker):
    """Collector whose rewards count a hundred times."""

    def collect_data(self, *args: Any, **kwargs: Any) -> Any:
        rows, info = super().collect_data(*args, **kwargs)
        segment = info["Segment"]
        info["Segment"] = replace(segment, stats={**segment.stats, "return": 4321.0})
        return rows, info


class RemakingGWorker(GWorker):
    """Gradient worker whose minibatches have rewards of zero."""

    def has_batch(self) -> bool:
        found = super().has_batch()
        if found:
            self._batch = self._batch.with_columns(reward=np.zeros_like(self._batch["reward"]))
        return found


class TellingUWorker(UWorker):
    """Update worker whose steps say so."""

    def step(self) -> Any:
        info = super().step()
        note("told", "0")
        return info
