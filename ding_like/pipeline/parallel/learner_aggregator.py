"""Have several learners on one machine act as one: each takes a share of every batch, gradients are averaged."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from ding_like.comm.torch_dist import GlooReducer, LearnerGroup, tensors_in
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.parallel.children import Children
from ding_like.pipeline.parallel.shares import check_shares
from ding_like.types import Array
from ding_like.utils.configurable import Configurable
from ding_like.utils.own_folder import make_own_folder
from ding_like.utils.parent import start_child

logger = logging.getLogger(__name__)

_START_S = 120.0  # for the other learners to import torch and build their policies


class LearnerAggregator(Configurable):
    """Be the first of `num_learners` learners, and the front of the others.

    `cfg` holds `main`, a compiled config whose `policy.learn.batch_size` is that of all learners together, `seed`,
    `num_learners`, `config_file` and `overrides`, from which the others compile the same config, and `timeout_s`.
    After `start` with the learn mode and gradient vectors of this process's policy:

        learner = create_learner(..., reducer=aggregator.reducer, dist_info=(0, num_learners))
        learner.train(aggregator.share(batch))
        priority = aggregator.merge_priority(learner.priority_info)

    Losses that are means over rows are those of one learner with the whole batch; what a policy normalises over its
    rows, it normalises over its share.
    """

    config: dict[str, Any] = {"num_learners": 2, "timeout_s": 60.0}

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        """Check the config. Raises ConfigError where a batch cannot be shared equally."""
        self._cfg = {**self.config, **cfg}
        self._world_size = int(self._cfg["num_learners"])
        self._group: LearnerGroup | None = None
        self._folder: Path | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self.reducer: GlooReducer | None = None
        check_shares(self._cfg["main"].policy, self._world_size)

    def start(self, state: Mapping[str, Any], grad_vectors: Sequence[Any]) -> None:
        """Start the other learners, with the first one's `state`; its gradients are averaged in `grad_vectors`."""
        if not grad_vectors:
            raise ConfigError(
                f"policy '{self._cfg['main'].policy.type}' does not say where its gradients are; several learners "
                "train policies with grad() and apply() only. Give system.num_learners=1."
            )
        self._folder = make_own_folder("ding-learners-")
        store = self._folder / "learners.store"
        for rank in range(1, self._world_size):
            self._processes.append(self._spawn(rank, store))
        self._group = LearnerGroup(store, rank=0, world_size=self._world_size, timeout_s=_START_S)
        self._group.broadcast(tensors_in(state))
        self.reducer = GlooReducer(self._group, list(grad_vectors))

    def _spawn(self, rank: int, store: Path) -> subprocess.Popen[bytes]:
        main = self._cfg["main"]
        arguments = [str(self._cfg["config_file"]), str(store), str(rank), str(self._world_size)]
        arguments += [str(self._cfg["seed"]), *self._cfg.get("overrides", ())]
        logs = Path(main.exp_name, "log", "workers")
        logs.mkdir(parents=True, exist_ok=True)
        with open(logs / f"learner_rank{rank}.txt", "ab") as output:
            return start_child(
                [sys.executable, "-m", "ding_like.pipeline.parallel.learner_rank", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def share(self, batch: TransitionBatch) -> TransitionBatch:
        """Send every other learner its share [B / num_learners] of a batch [B]; return the first's."""
        rows = len(batch) // self._world_size
        if rows * self._world_size != len(batch):
            raise ConfigError(f"a batch of {len(batch)} rows cannot be shared equally by {self._world_size} learners.")
        shares = [batch.take(np.arange(rank * rows, (rank + 1) * rows)) for rank in range(self._world_size)]
        self._joined().scatter([to_bytes(share) for share in shares])
        return shares[0]

    def merge_priority(self, priority_info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first learner's `priority_info` with the priorities [B] of all; nothing without priorities."""
        if not priority_info:
            return {}
        return {**priority_info, "priority": self._joined().gather(np.asarray(priority_info["priority"]))}

    @staticmethod
    def merge_info(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Make one report of those of all learners.

        What is the same for all is the first's, lists follow each other, and numbers are averaged.
        """
        merged: dict[str, Any] = {}
        for name, first in infos[0].items():
            values = [info[name] for info in infos]
            if name in ("learner_step", "buffer_id", "task_id", "learner_done"):
                merged[name] = first
            elif isinstance(first, list):
                merged[name] = [each for value in values for each in value]
            elif isinstance(first, (int, float)) and not isinstance(first, bool):
                merged[name] = float(np.mean(values))
            else:
                merged[name] = first
        return merged

    def close(self) -> None:
        """Let the other learners end, and see that they have; may be called again."""
        if self._group is not None:
            try:
                self._group.scatter(None)
            except CommError as error:  # they have ended already; why was said where it happened
                logger.debug("the other learners were not told of the end: %s", error)
            self._group.close()
            self._group = None
        Children.end(self._processes)
        self._processes = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _joined(self) -> LearnerGroup:
        if self._group is None:
            raise CommError("the other learners have not been started.")
        return self._group


def to_bytes(batch: TransitionBatch) -> bytes:
    """Return a batch as safetensors, with nothing that could be executed."""
    data: bytes = save({name: np.ascontiguousarray(column) for name, column in batch.columns.items()})
    return data


def from_bytes(data: bytes) -> TransitionBatch:
    """Return the batch that `to_bytes` was given."""
    columns: dict[str, Array] = load(data)
    return TransitionBatch(columns)
