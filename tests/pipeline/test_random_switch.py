"""The switch from random actions to the policy's, by a role in a run of many: no row says what nobody played."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Order, Segment
from ding_like.pipeline.collect import CollectRole, PolicyWeights
from ding_like.worker import SampleSerialCollector
from tests.worker.collector.test_sample import Rows, keys
from tests.worker.scripted_manager import ScriptedManager


class Deliberate:
    """Act by a running number from 1000 on, so that no random action is like one of these."""

    def __init__(self) -> None:
        self._next = 1000

    def act(self, obs: Any, *, lanes: Any, **_: Any) -> dict[str, Any]:
        self._next += len(lanes)
        return {"action": np.arange(self._next - len(lanes), self._next)}

    def reset(self, lanes: Any = None) -> None: ...


class Sink:
    """Take segments, and order four rows until `rows` have come."""

    def __init__(self, rows: int) -> None:
        self.segments: list[Segment] = []
        self._rows = rows

    def put(self, segment: Segment) -> Order:
        self.segments.append(segment)
        return self.order(timeout_s=0.0)

    def order(self, *, timeout_s: float) -> Order:
        steps = sum(each.env_steps for each in self.segments)
        return Order(sum(len(each.batch) for each in self.segments) >= self._rows, 4, steps, None)


class Watched(ScriptedManager):
    """Keep what was played: lane, episode, step -> action."""

    played: dict[tuple[int, ...], int]

    def step(self, lanes: Any, actions: Any, *, timeout_s: Any = None) -> Any:
        for lane, action in zip(lanes.tolist(), actions.tolist(), strict=True):
            self.played[tuple(int(v) for v in self.obs[lane])] = action
        return super().step(lanes, actions, timeout_s=timeout_s)


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("delay", [0, 3])
def test_rows_that_are_open_when_the_policy_takes_over_keep_their_random_actions(
    tmp_path: Path, delay: int, nstep: int
) -> None:
    manager = Watched([[9], [4], [7]], delay=delay)
    manager.played = {}
    mode = Rows(nstep=nstep).collect_mode._replace(actor=Deliberate())
    command = SimpleNamespace(get_setting_collect=lambda info: {})
    collector = SampleSerialCollector(SampleSerialCollector.default_config(), manager, mode, exp_name=str(tmp_path))
    weights = PolicyWeights(SimpleNamespace(collect_mode=mode, command_mode=command))  # type: ignore[arg-type]
    sink = Sink(60)

    CollectRole(collector, weights, sink=sink, random_steps=30, action_space=manager.action_space).run()
    collector.close()

    logged = defaultdict(list)
    for segment in sink.segments:
        for key, action in zip(keys(segment.batch), segment.batch["action"].tolist(), strict=True):
            assert action == manager.played[key], "an action that was not played there"
            logged[key[0]].append(key)
    assert sorted(action < 1000 for action in manager.played.values())[:: len(manager.played) - 1] == [False, True]
    for lane, mine in logged.items():
        history = [key for key in manager.history if key[0] == lane]
        assert mine == history[: len(mine)], "a row is lost or doubled at the switch"
