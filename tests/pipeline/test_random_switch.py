"""Switch from random actions to the policy's in a rollout worker: each row has the action that was played."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import CollectRequest, Segment
from ding_like.config import FrozenConfig
from ding_like.pipeline.collect import PolicyWeights, RolloutWorker
from ding_like.worker import SampleSerialCollector
from tests.worker.collector.test_sample import Rows, keys
from tests.worker.scripted_manager import ScriptedManager


class Deliberate:
    """Actor that counts from 1000 on, so that no random action is like one of these."""

    def __init__(self) -> None:
        self._next = 1000

    def act(self, obs: Any, *, lanes: Any, **_: Any) -> dict[str, Any]:
        self._next += len(lanes)
        return {"action": np.arange(self._next - len(lanes), self._next)}

    def reset(self, lanes: Any = None) -> None: ...


class Sink:
    """Sink that requests four rows until `rows` have come."""

    def __init__(self, rows: int) -> None:
        self.segments: list[Segment] = []
        self._rows = rows

    def put(self, segment: Segment) -> CollectRequest:
        self.segments.append(segment)
        return self.order(timeout_s=0.0)

    def order(self, *, timeout_s: float) -> CollectRequest:
        steps = sum(each.env_steps for each in self.segments)
        return CollectRequest(sum(len(each.batch) for each in self.segments) >= self._rows, 4, steps, None)


class Watched(ScriptedManager):
    """Manager that records what was played: lane, episode, step -> action."""

    played: dict[tuple[int, ...], int]

    def wrapper_states(self) -> list[Any]:
        return []

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
    policy: Any = SimpleNamespace(collect_mode=mode, command_mode=command)
    collect = {"collector": SampleSerialCollector.default_config()}
    cfg = FrozenConfig(dict(exp_name=str(tmp_path), policy=dict(random_collect_size=30, collect=collect)))
    worker, sink = RolloutWorker(cfg, manager, policy, fitted={}, seed=0), Sink(60)
    worker.connect(PolicyWeights(policy), sink)

    worker.run()
    worker.close()

    logged = defaultdict(list)
    for segment in sink.segments:
        for key, action in zip(keys(segment.batch), segment.batch["action"].tolist(), strict=True):
            assert action == manager.played[key], "an action that was not played there"
            logged[key[0]].append(key)
    assert sorted(action < 1000 for action in manager.played.values())[:: len(manager.played) - 1] == [False, True]
    for lane, mine in logged.items():
        history = [key for key in manager.history if key[0] == lane]
        assert mine == history[: len(mine)], "a row is lost or doubled at the switch"
