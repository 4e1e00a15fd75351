"""The 17 interfaces of `BaseParallelCollector` on the API page are what a task runs through."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ding_like.comm.channels import CollectRequest, Segment
from ding_like.config import compile_config
from ding_like.worker import BaseParallelCollector, ZerglingParallelCollector
from tests.pipeline.parallel.runs import small_dqn

pytestmark = pytest.mark.usefixtures("in_tmp")

OF_A_TASK = (
    "_setup_timer _setup_logger _iter_after_hook _policy_inference _env_step _process_timestep _finish_task "
    "_update_policy _start_thread _join_thread"
).split()
PAGE = ["__init__", "info", "error", "debug", "get_finish_info", "start", "close", *OF_A_TASK]


class Sink:
    """Order three segments of 8 rows."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def order(self, *, timeout_s: float) -> CollectRequest:
        done = len(self.segments) == 3
        return CollectRequest(done, 0 if done else 8, 100, None)

    def put(self, segment: Segment) -> CollectRequest:
        self.segments.append(segment)
        return self.order(timeout_s=0.0)


class NoWeights:
    def newest(self, policy_id: str, **_: Any) -> None: ...


def counted(name: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls[name] += 1
        return getattr(ZerglingParallelCollector, name)(self, *args, **kwargs)

    return call


Counting: Any = type(
    "Counting", (ZerglingParallelCollector,), {"calls": Counter(), **{name: counted(name) for name in OF_A_TASK}}
)


def test_the_base_class_has_all_interfaces_of_the_page() -> None:
    assert len(PAGE) == 17
    assert [name for name in PAGE if not callable(getattr(BaseParallelCollector, name, None))] == []
    assert isinstance(BaseParallelCollector.policy, property)


def test_a_task_runs_through_every_hook() -> None:
    sink = Sink()
    cfg = {"main": compile_config(*small_dqn(), seed=0), "seed": 0, "collector_uid": "c0", "index": 0}
    collector = Counting(cfg, sink=sink, reader=NoWeights())

    collector.start({"eval_flag": False, "policy_id": "policy"})

    steps = sum(segment.env_steps for segment in sink.segments) // 2  # of two envs at once
    assert collector.get_finish_info() == {"segments": 3} and steps >= 12
    assert collector.calls == Counter(
        dict.fromkeys(OF_A_TASK, 1)
        | dict.fromkeys(("_policy_inference", "_env_step", "_process_timestep"), steps)
        | dict.fromkeys(("_update_policy", "_iter_after_hook"), 3)
    )
    collector.close()
