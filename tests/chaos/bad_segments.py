"""Spoil some of many segments in five ways, after they were announced, and learn from the rest."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.rows import RestBatchSource, RowCheck
from ding_like.data.batch import Schema
from ding_like.data.segment_file import SegmentMeta, WrittenSegment, read_segment, write_segment
from ding_like.pipeline.parallel.coordinator import LockedService
from ding_like.types import Array
from tests.chaos.counting_env import CountingEnv, num_doubled, recognise
from tests.chaos.report import Report
from tests.pipeline.parallel.service_parts import begin, make_core

WAYS = ("truncated", "bit_flipped", "zero_length", "missing", "swapped")
_ROWS = 8
_BATCH = 32
_NEXT_S = 60.0
_REPORT_S = 1.5  # reports of a learner are further apart than a second
_ALL_S = 120.0  # for all that is bad to be told


def run_bad_segments(*, segments: int, share: float, seed: int) -> Report:
    """Announce segments of which a `share` is bad, and draw batches until all were looked at."""
    report = Report("bad_segments", segments=segments, rows_each=_ROWS, share=share, ways=list(WAYS), seed=seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        core: Any = make_core(folder, size=segments * _ROWS)
        service = LockedService(core)
        learner, learn, collector, task = begin(core)
        written, keys = _write(folder, collector, segments)
        spoiled = _spoil(folder, [each.name for each in written], share, random.Random(seed))
        for first in range(0, segments, 500):
            infos = tuple(
                m.SegmentInfo(**each._asdict(), policy_version=0, env_steps=_ROWS)
                for each in written[first : first + 500]
            )
            service.heartbeat(learner, m.Heartbeat("learn"))
            service.send_data(collector, task.task_id, m.SendData(task.attempt, infos))
        bad_keys = {key for each, own in zip(written, keys, strict=True) if each.name in spoiled for key in own}
        expected = len(spoiled) * _ROWS
        _learn(report, folder, service, (learner, learn), bad_keys, lambda: core.book.bad_rows >= expected, segments)
        bad_rows = core.book.bad_rows
        report.figures["spoiled"] = dict(Counter(spoiled.values()))
        report.at_least("rows told to the coordinator as bad", bad_rows, expected)
        report.at_most("rows told to the coordinator as bad", bad_rows, expected)
        report.at_most("failures of the run", int(core.failure is not None), 0)
        core.close()
    return report


def _write(folder: Path, collector: str, segments: int) -> tuple[list[WrittenSegment], list[list[bytes]]]:
    """Play CountingEnv and write what it gives; return the segments and, for each, who its rows are."""
    env = CountingEnv()
    written, keys = [], []
    obs, _ = env.reset(seed=0)
    for number in range(segments):
        rows: dict[str, list[Any]] = {name: [] for name in ("obs", "next_obs", "action", "reward", "terminated")}
        for _ in range(_ROWS):
            action = int(env.np_random.integers(2))
            next_obs, reward, terminated, _, _ = env.step(action)
            for name, value in zip(rows, (obs, next_obs, action, reward, terminated), strict=True):
                rows[name].append(value)
            obs = env.reset()[0] if terminated else next_obs
        columns = {name: np.array(values) for name, values in rows.items()}
        columns["reward"] = columns["reward"].astype(np.float32)
        meta = SegmentMeta("collect-1", 1, collector, number, 0, _ROWS)
        written.append(write_segment(folder, f"{collector}.{number:08d}", columns, meta))
        keys.append([key.tobytes() for key in recognise(columns).keys])
    return written, keys


def _spoil(folder: Path, names: list[str], share: float, rng: random.Random) -> dict[str, str]:
    """Spoil a share of the files, as many in each way; return the way by name."""
    each = int(len(names) * share / len(WAYS))
    # Two files that swap their names are both bad, so that way takes pairs.
    chosen = rng.sample(names, each * len(WAYS) // 2 * 2)
    spoiled = {}
    for index, way in enumerate(WAYS):
        for name in chosen[index * each : (index + 1) * each]:
            spoiled[name] = way
            _spoil_file(folder / f"{name}.safetensors", way, rng)
    swapped = [name for name, way in spoiled.items() if way == "swapped"]
    for one, other in zip(swapped[::2], swapped[1::2], strict=True):
        first, second = (folder / f"{name}.safetensors" for name in (one, other))
        os.replace(first, folder / "between")
        os.replace(second, first)
        os.replace(folder / "between", second)
    return spoiled


def _spoil_file(path: Path, way: str, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if way == "truncated":
        path.write_bytes(data[: rng.randrange(1, len(data))])
    elif way == "bit_flipped":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif way == "zero_length":
        path.write_bytes(b"")
    elif way == "missing":
        path.unlink()


def _learn(
    report: Report,
    folder: Path,
    service: Any,
    task: tuple[str, m.Task],
    bad_keys: set[bytes],
    all_told: Callable[[], bool],
    segments: int,
) -> None:
    learner, learn = task
    looked_at: set[str] = set()

    def read(segment: m.NewSegment) -> dict[str, Array]:
        looked_at.add(segment.name)
        columns, _ = read_segment(folder, segment.name, rows=segment.rows, sha256=segment.sha256, nbytes=segment.nbytes)
        RowCheck(CountingEnv().observation_space, spaces.Discrete(2), Schema.of(columns))(columns)
        return columns

    source = RestBatchSource(
        service, learn, worker_id=learner, read=read, batch_size=_BATCH, buffer_size=segments * _ROWS, num_batches=32
    )
    bad = torn = doubled = batches = iteration = 0
    slowest = 0.0
    try:
        deadline = time.monotonic() + _ALL_S
        while len(looked_at) < segments or not (all_told() or time.monotonic() > deadline):
            started = time.monotonic()
            batch = source.next(timeout_s=_NEXT_S if len(looked_at) < segments else _REPORT_S)
            if batch is None:  # all updates are made; late priorities are sent with the next report
                assert len(looked_at) == segments, f"no batch in {_NEXT_S:g} s, {len(looked_at)} segments looked at"
                source.feedback(iteration, priority=None, info=dict)
                continue
            slowest = max(slowest, time.monotonic() - started)
            found = recognise(batch.columns)
            bad += sum(key.tobytes() in bad_keys for key in found.keys)
            torn, batches, iteration = torn + found.torn, batches + 1, iteration + 1
            # A row in the place of one that cannot be read comes twice by rule; others do not.
            doubled += max(num_doubled(found.keys) - source.num_replaced, 0)
            source.feedback(iteration, priority=None, info=dict)
    finally:
        source.close()
    report.figures.update(
        batches=batches, rows_replaced=source.num_replaced, slowest_batch_s=round(slowest, 2), looked_at=len(looked_at)
    )
    report.at_least("segments looked at", len(looked_at), segments)
    report.at_most("rows of bad segments in a training batch", bad, 0)
    report.at_most("rows torn in a training batch", torn, 0)
    report.at_most("rows doubled in a training batch", doubled, 0)
