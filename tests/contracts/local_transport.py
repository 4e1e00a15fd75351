"""Rows in one process, behind the transports of the contract suite that have a store here."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ding_like.comm.channels import Version
from ding_like.comm.local import BatchOnce, LocalRows
from ding_like.pipeline.update_ratio import UpdateRatio
from ding_like.worker import create_buffer
from tests.contracts.channel_cases import BATCH, SEGMENT, Kind


def local_rows(stack: ExitStack, folder: Path, kind: Kind) -> LocalRows:
    rng = np.random.default_rng(0)
    if kind == "once":
        store, updates = BatchOnce(), 1
    else:
        cfg = dict(type="naive", replay_buffer_size=64)
        if kind == "priority":
            cfg = dict(type="advanced", replay_buffer_size=64, priority=True, alpha=1.0, anneal_step=1000)
        store, updates = create_buffer(cfg, exp_name=str(folder), rng=rng), 2
        stack.callback(store.close)
    ratio = UpdateRatio.per_segment(updates)
    return LocalRows(store, ratio, segment_rows=SEGMENT, batch_size=BATCH, newest=lambda: Version(0, 0))
