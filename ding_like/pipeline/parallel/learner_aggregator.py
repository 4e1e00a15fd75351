"""Have several learners on one machine act as one: each takes a share of every batch, gradients are averaged."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from ding_like.comm.learner_group import GroupReducer, LearnerGroup
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.learners.shares import check_shares
from ding_like.policy import Policy
from ding_like.policy.share import Share
from ding_like.types import Array
from ding_like.utils.checkpoint import save_state
from ding_like.utils.configurable import Configurable
from ding_like.utils.own_folder import make_own_folder
from ding_like.utils.parent import start_child
from ding_like.utils.processes import end_processes
from ding_like.utils.seeding import rng_state

logger = logging.getLogger(__name__)

STATE_FILE = "state.pt"  # beside the group's store: the first learner's state, for the others to load
_HEADER = "~header"
_START_S = 120.0  # for the other learners to import torch and build their policies


class LearnerAggregator(Configurable):
    """Be the first of `num_learners` learners, and the front of the others.

    `cfg` holds `main`, a compiled config whose `policy.learn.batch_size` is that of all learners together, `seed`,
    `num_learners`, `config_file` and `overrides`, from which the others compile the same config, and `timeout_s`.
    After `start` with this process's policy and the generator that shuffles its minibatches:

        learner = create_learner(..., rng=rng, reducer=aggregator.reducer, dist_info=(0, num_learners))
        learner.train(aggregator.share(batch, train_iter=learner.train_iter))
        priority = aggregator.merge_priority(learner.priority_info)

    They learn what one learner with the whole batch would. A policy with `takes_whole_batches` (all that learn from
    advantages) is given those in every process, and takes its share of each minibatch; others are given their rows.
    """

    config: dict[str, Any] = {"num_learners": 2, "timeout_s": 60.0}

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        """Check the config. Raises ConfigError where a batch cannot be shared equally."""
        self._cfg = {**self.config, **cfg}
        self._world_size = int(self._cfg["num_learners"])
        self._group: LearnerGroup | None = None
        self._folder: Path | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._policy: Policy | None = None
        self._rng = np.random.default_rng(0)
        self._is_stale = True  # the others' state, until the first batch
        self.reducer: GroupReducer | None = None
        check_shares(self._cfg["main"].policy, self._world_size)

    def start(self, policy: Policy, *, rng: np.random.Generator) -> None:
        """Start the other learners beside the one that trains `policy` and shuffles by `rng`."""
        if not policy.grad_vectors():
            raise ConfigError(
                f"policy '{self._cfg['main'].policy.type}' does not say where its gradients are; several learners "
                "train policies with grad() and apply() only. Give system.num_learners=1."
            )
        self._folder = make_own_folder("ding-learners-")
        store = self._folder / "learners.store"
        for rank in range(1, self._world_size):
            self._processes.append(self._spawn(rank, store))
        timeout_s = float(self._cfg["timeout_s"])
        self._group = LearnerGroup(store, rank=0, world_size=self._world_size, timeout_s=timeout_s, join_s=_START_S)
        self.reducer = GroupReducer(self._group, policy.grad_vectors(), weight=policy.grad_weight)
        policy.set_share(Share(0, self._world_size))
        self._policy, self._rng = policy, rng

    def renew(self) -> None:
        """Give the others the first learner's state before the next batch: it may have been loaded or changed."""
        self._is_stale = True

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

    def share(self, batch: TransitionBatch, *, train_iter: int = 0) -> TransitionBatch:
        """Send every other learner what it is to train on of a batch [B], the whole or its rows; return the first's.

        `train_iter` is what the first learner has counted so far.
        """
        group, policy = self._joined()
        if self._is_stale:
            assert self._folder is not None, "made by start"
            save_state(self._folder / STATE_FILE, policy.learn_mode.state_dict())
            group.scatter([pack({}, {"train_iter": train_iter})] * self._world_size)
            self._is_stale = False
        if policy.takes_whole_batches:
            group.scatter([pack(batch.columns, {"rng": rng_state(self._rng)})] * self._world_size)
            return batch
        rows = len(batch) // self._world_size
        if rows * self._world_size != len(batch):
            raise ConfigError(f"a batch of {len(batch)} rows cannot be shared equally by {self._world_size} learners.")
        shares = [batch.take(np.arange(rank * rows, (rank + 1) * rows)) for rank in range(self._world_size)]
        group.scatter([pack(share.columns, {}) for share in shares])
        return shares[0]

    def merge_priority(self, priority_info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first learner's `priority_info` with the priorities [B] of all; nothing without priorities."""
        if not priority_info:
            return {}
        return {**priority_info, "priority": self._joined()[0].gather(np.asarray(priority_info["priority"]))}

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
        end_processes(self._processes)
        self._processes = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _joined(self) -> tuple[LearnerGroup, Policy]:
        if self._group is None or self._policy is None:
            raise CommError("the other learners have not been started.")
        return self._group, self._policy


def pack(columns: Mapping[str, Array], header: Mapping[str, Any]) -> bytes:
    """Return columns and a JSON-like header as safetensors, with nothing that could be executed."""
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    data: bytes = save({**arrays, _HEADER: np.frombuffer(json.dumps(header).encode(), np.uint8)})
    return data


def unpack(data: bytes) -> tuple[TransitionBatch, dict[str, Any]]:
    """Return (the columns as a batch, the header) that `pack` was given."""
    arrays: dict[str, Array] = load(data)
    header: dict[str, Any] = json.loads(arrays.pop(_HEADER).tobytes())
    return TransitionBatch(arrays), header
