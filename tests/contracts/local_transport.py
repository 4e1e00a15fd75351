"""Make the ends of ding_like/comm/local.py for the contract suite."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ding_like.comm.channels import Version
from ding_like.comm.local import BatchOnce, LocalRows
from ding_like.pipeline.update_ratio import UpdateRatio
from ding_like.worker import create_buffer
from tests.contracts.channel_cases import BATCH, SEGMENT, Kind, RowEnds, Transport


def rows(stack: ExitStack, folder: Path, kind: Kind) -> RowEnds:
    rng = np.random.default_rng(0)
    if kind == "once":
        store, updates = BatchOnce(), 1
    else:
        cfg = dict(type="naive", replay_buffer_size=64)
        if kind == "priority":
            cfg = dict(type="advanced", replay_buffer_size=64, priority=True, alpha=1.0, anneal_step=1000)
        store, updates = create_buffer(cfg, exp_name=str(folder), rng=rng), 2
        stack.callback(store.close)
    ends = LocalRows(
        store,
        UpdateRatio.per_segment(updates),
        segment_rows=SEGMENT,
        batch_size=BATCH,
        newest=lambda: Version(0, 0),
    )
    stack.callback(ends.close)
    return RowEnds(ends, ends, ends.close)


TRANSPORT = Transport(None, rows)
