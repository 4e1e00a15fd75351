"""Rows in one process, behind the transports of the contract suite that have a store here."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ding_like.comm.channels import Version
from ding_like.config import FrozenConfig
from ding_like.pipeline.rows import RowQueue
from ding_like.worker import create_buffer
from tests.contracts.channel_cases import BATCH, SEGMENT, Kind


def local_rows(stack: ExitStack, folder: Path, kind: Kind) -> RowQueue:
    rng = np.random.default_rng(0)
    if kind == "once":
        store, updates = None, 1
    else:
        cfg = dict(type="naive", replay_buffer_size=64)
        if kind == "priority":
            cfg = dict(type="advanced", replay_buffer_size=64, priority=True, alpha=1.0, anneal_step=1000)
        store, updates = create_buffer(cfg, exp_name=str(folder), rng=rng), 2
        stack.callback(store.close)
    learn = dict(update_per_collect=updates, batch_size=BATCH)
    policy = dict(collect=dict(n_sample=SEGMENT), learn=learn, priority=kind == "priority")
    return RowQueue(FrozenConfig(dict(policy=policy)), store, newest=lambda: Version(0, 0))
