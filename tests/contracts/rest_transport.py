"""Carry weights and rows over a coordinator's service in this process, or over HTTP, and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ding_like.comm.channels import CollectRequest, Segment, Version, Weights
from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.keys import make_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import SharedFiles
from ding_like.comm.rest.rows import RestBatchSource, RestRowSink
from ding_like.comm.rest.worker import RestWeightPublisher, RestWeightReader, TaskHandle, WorkerLink
from ding_like.comm.tensors import WireDtype
from ding_like.data.batch import Schema
from ding_like.data.segment_file import read_segment
from ding_like.pipeline.parallel.coordinator import LockedService
from ding_like.pipeline.parallel.core import CoordinatorCore, CoreConfig
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.rows import OnPolicyRatio, UpdateRatio
from ding_like.types import Array
from ding_like.worker import IBuffer, create_buffer
from ding_like.worker.commander import NaiveCommander, NewTask
from tests.contracts.channel_cases import BATCH, SEGMENT, Kind, RowEnds, Transport, WeightEnds
from tests.pipeline.parallel.service_parts import Clock

SIZE = 80
SCHEMA = Schema.of(
    {"row": np.zeros(1, np.int64), "obs": np.zeros((1, 3), np.float32), "reward": np.zeros(1, np.float32)}
)


class Commander(NaiveCommander):
    """Commander that asks for no evaluations."""

    def new_tasks(self, run: Any) -> list[NewTask]:
        self._evaluated = 10**12  # as if later weights had been evaluated
        return super().new_tasks(run)


class Net:
    """Coordinator and the links of its two workers, each with a task."""

    def __init__(self, stack: ExitStack, folder: Path, kind: Kind, *, over_http: bool, by_delta: bool = False) -> None:
        self.core = _make_core(folder, kind)
        stack.callback(self.core.close)
        self.service = LockedService(self.core)
        cfg: dict[str, Any] = {"path_data": str(folder / "data"), "path_policy": str(folder / "policy")}
        if over_http:
            keys = folder / "keys.json"
            places = {"segments": folder / "data", "weights": folder / "policy"}
            server = CoordinatorServer(self.service, make_keys(keys), **places)  # type: ignore[arg-type]
            server.start()
            stack.callback(server.close)
            cfg = {"coordinator": server.url, "key_file": keys, "communication_mode": "stream"}
            cfg["weights"] = {"delta": by_delta}
        near = None if over_http else self.service
        self.learner = WorkerLink("learner", cfg, near, resources={})
        self.collector = WorkerLink("collector", cfg, near, resources={})
        for link in (self.learner, self.collector):
            stack.callback(link.close)
            link.start()
        self.learn, _ = self.claim(self.learner)
        self.collect, self.handle = self.claim(self.collector)

    def claim(self, link: WorkerLink) -> tuple[m.Task, TaskHandle]:
        task = link.coordinator.claim(link.worker_id, m.Claim()).task
        assert task is not None
        return task, link.begin(task)

    def finish(self) -> None:
        with self.service.locked():
            self.core.is_over = True


def _make_core(folder: Path, kind: Kind) -> CoordinatorCore:
    def make_buffer() -> IBuffer:
        name = "advanced" if kind == "priority" else "naive"
        cfg = {"type": name, "replay_buffer_size": SIZE}
        return create_buffer(cfg, exp_name=str(folder), instance_name="buffer", rng=np.random.default_rng(0))

    replayed = UpdateRatio(warmup_steps=0, steps=SEGMENT, updates=2, max_lead=SEGMENT)
    return CoordinatorCore(
        CoreConfig(OnPolicyRatio(SEGMENT) if kind == "once" else replayed, SIZE, SEGMENT),
        clock=Clock(),
        wall_clock=lambda: 1000.0,
        store=StateStore(folder / "state.sqlite"),
        commander=Commander({}),
        make_buffer=make_buffer,
    )


def _weights(
    stack: ExitStack, folder: Path, *, over_http: bool, dtype: WireDtype = "exact", by_delta: bool = False
) -> WeightEnds:
    net = Net(stack, folder, "replay", over_http=over_http, by_delta=by_delta)
    publisher = RestWeightPublisher(net.learner, net.learn, dtype=dtype)
    stack.callback(publisher.abandon, timeout_s=5.0)
    reader = RestWeightReader(net.collector)
    return WeightEnds(publisher, reader, dtype)


def read(files: SharedFiles, segment: m.NewSegment) -> dict[str, Array]:
    """Fetch and load a segment."""
    files.fetch_segment(segment.name)
    told = {"rows": segment.rows, "sha256": segment.sha256, "nbytes": segment.nbytes}
    return read_segment(files.segments, segment.name, **told)[0]


class FreshSink:
    """Sink that marks rows as made with the newest weights, as the rows of an on-policy collector are."""

    def __init__(self, sink: RestRowSink) -> None:
        self._sink = sink

    def put(self, segment: Segment) -> CollectRequest:
        newest = self.order(timeout_s=0.0).newest
        assert newest is not None
        return self._sink.put(replace(segment, version=newest))

    def order(self, *, timeout_s: float) -> CollectRequest:
        return self._sink.order(timeout_s=timeout_s)


class LateSource:
    """Begin to fetch when the first batch is asked for: until then nothing is granted to a learner.

    After each update `updated` is called.
    """

    def __init__(self, make: Callable[[], RestBatchSource], updated: Callable[[int], object]) -> None:
        self._make = make
        self._updated = updated
        self._source: RestBatchSource | None = None

    def _opened(self) -> RestBatchSource:
        self._source = self._source or self._make()
        return self._source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened(), name)

    def feedback(self, train_iter: int, *, priority: Array | None, info: Callable[[], Mapping[str, Any]]) -> None:
        self._opened().feedback(train_iter, priority=priority, info=info)
        self._updated(train_iter)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


def _rows(stack: ExitStack, folder: Path, kind: Kind, *, over_http: bool) -> RowEnds:
    net = Net(stack, folder, kind, over_http=over_http)
    sink = RestRowSink(net.collector)
    publisher = RestWeightPublisher(net.learner, net.learn)
    stack.callback(publisher.abandon, timeout_s=5.0)

    def publish(update: int) -> None:
        version = Version(net.learn.attempt, update)
        publisher.publish(Weights("policy", version, {"w": torch.zeros(1)}), wait_s=10.0)

    publish(0)

    def make() -> RestBatchSource:
        return RestBatchSource(
            net.learner.coordinator,
            net.learn,
            worker_id=net.learner.worker_id,
            read=partial(read, net.learner.files),
            batch_size=SEGMENT if kind == "once" else BATCH,
            buffer_size=SIZE,
            num_batches=1,
            schema=SCHEMA,
            waits_for_late=kind == "once",
        )

    source = LateSource(make, publish if kind == "once" else lambda train_iter: None)
    stack.callback(source.close)
    return RowEnds(FreshSink(sink) if kind == "once" else sink, source, net.finish)


def _transport(*, over_http: bool, kinds: tuple[Kind, ...]) -> Transport:
    return Transport(
        weights=partial(_weights, over_http=over_http),
        rows=partial(_rows, over_http=over_http),
        kinds=kinds,
        priorities_at_once=False,
    )


def weights_only(*, dtype: WireDtype = "exact", over_http: bool = False, by_delta: bool = False) -> Transport:
    """Return the transport of weights that are encoded in some way."""
    return Transport(partial(_weights, over_http=over_http, dtype=dtype, by_delta=by_delta))


TRANSPORT = _transport(over_http=False, kinds=("replay", "priority", "once"))
# How rows become batches is the coordinator's matter, and does not depend on HTTP.
OVER_HTTP = _transport(over_http=True, kinds=("priority",))
