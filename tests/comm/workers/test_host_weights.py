"""Weights go to the workers of a host once a version, and nobody slow or lost holds the others up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.weights.encode import Encoded, encode
from ding_like.comm.workers.host import Resources, WorkerHandle
from ding_like.comm.workers.threads import Shared, ThreadHost
from ding_like.comm.workers.weights import HostWeightPublisher, HostWeightReader
from ding_like.errors import CommError

SOON_S = 60.0
MOMENT_S = 0.05


class Worker(HostWeightReader):
    """Reader that notes which versions come; `gate` holds the call that brings one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.came: list[int] = []
        self.refuses = False

    def set_weights(self, encoded: Encoded) -> None:
        self.begun.set()
        assert self.gate.wait(SOON_S)
        if self.refuses:
            raise CommError("these are of another model.")
        super().set_weights(encoded)
        self.came.append(encoded.head["version"][1])

    def ping(self) -> None: ...


class Team:
    """Host with workers, and a publisher for them."""

    def __init__(self, number: int) -> None:
        self.host = ThreadHost()
        self.handles: list[WorkerHandle] = []
        self.objects: list[Worker] = []
        for _ in range(number):
            self.add()
        self.publisher = HostWeightPublisher(self.host, lambda: self.handles)

    def add(self) -> WorkerHandle:
        worker = Worker()
        handle = self.host.start(lambda: worker, name=f"worker{len(self.objects)}", resources=Resources())
        self.objects.append(worker)
        self.handles.append(handle)
        return handle

    def close(self) -> None:
        for each in self.objects:
            each.gate.set()
        self.publisher.close()
        self.host.close()


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team(2)
    yield team
    team.close()


def weights(update: int, *, policy_id: str = "policy", size: int = 8) -> Weights:
    return Weights(policy_id, Version(1, update), {"weight": torch.full((size,), float(update))})


def seen_by(worker: Worker, newer_than: int = -1) -> float:
    found = worker.newest("policy", newer_than=Version(1, newer_than), timeout_s=SOON_S)
    assert found is not None
    return float(found.state["weight"][0])


def test_all_workers_have_what_was_waited_for(team: Team) -> None:
    receipt = team.publisher.publish(weights(1), wait_s=SOON_S)

    assert receipt.delivered == ("worker0", "worker1") and not receipt.failed
    assert [seen_by(each) for each in team.objects] == [1.0, 1.0]


def test_a_slow_worker_passes_versions_over_and_gets_the_newest(team: Team) -> None:
    slow, quick = team.objects
    slow.gate.clear()
    for update in range(1, 6):
        receipt = team.publisher.publish(weights(update), to=["worker0"])
        assert receipt == ((), (), ()), "nobody is known to have it"
    assert team.publisher.publish(weights(6), wait_s=MOMENT_S) == (("worker1",), ("worker0",), ())
    assert quick.came == [6]
    slow.gate.set()

    assert seen_by(slow, newer_than=5) == 6.0
    team.publisher.close()
    assert slow.came == [1, 6]


def test_only_those_that_are_named_get_weights_and_unknown_ones_fail(team: Team) -> None:
    receipt = team.publisher.publish(weights(1), to=["worker1", "nobody"], wait_s=SOON_S)

    assert receipt == (("worker1",), ("nobody",), ())
    assert team.objects[0].came == []


def test_a_worker_that_is_lost_fails_without_a_wait(team: Team) -> None:
    slow, _ = team.objects
    slow.gate.clear()
    team.publisher.publish(weights(1))
    assert slow.begun.wait(SOON_S)
    killing = threading.Timer(MOMENT_S, lambda: team.host.kill(team.handles[0]))
    killing.start()

    receipt = team.publisher.publish(weights(2), wait_s=600.0)  # longer than a test may take

    assert receipt == (("worker1",), ("worker0",), ())
    killing.join(SOON_S)


def test_a_worker_that_refuses_weights_is_told_of_and_gets_the_next(
    team: Team, caplog: pytest.LogCaptureFixture
) -> None:
    team.objects[0].refuses = True
    with caplog.at_level(logging.WARNING):
        assert team.publisher.publish(weights(1), wait_s=SOON_S).failed == ("worker0",)
    assert "worker0" in caplog.text and "another model" in caplog.text
    team.objects[0].refuses = False

    assert team.publisher.publish(weights(2), wait_s=SOON_S).delivered == ("worker0", "worker1")


def test_a_worker_that_comes_later_is_sent_the_newest(team: Team) -> None:
    late = team.add()
    assert team.publisher.send_to(late) is None, "nothing was published"
    team.publisher.publish(weights(3), to=["worker0"], wait_s=SOON_S)

    call = team.publisher.send_to(late)

    assert call is not None and team.host.wait([call], timeout_s=SOON_S) == [call]
    assert seen_by(team.objects[2]) == 3.0 and team.objects[1].came == []


def test_the_newest_weights_are_brought_to_those_that_do_not_have_them(team: Team) -> None:
    team.objects[1].refuses = True
    team.publisher.publish(weights(4), wait_s=SOON_S)
    team.objects[1].refuses = False
    team.add()  # prepared with nothing, or with what was published before

    assert team.publisher.bring(wait_s=SOON_S) == []
    assert [each.came for each in team.objects] == [[4], [4], [4]]
    assert team.publisher.bring(wait_s=SOON_S) == [] and team.objects[0].came == [4], "nobody is sent them again"


def test_who_does_not_take_the_weights_is_known_and_who_is_lost_is_others_to_tell(team: Team) -> None:
    team.add()
    team.publisher.publish(weights(4), wait_s=SOON_S)
    team.objects[0].refuses = True
    team.objects[1].gate.clear()
    team.host.kill(team.handles[2])
    team.publisher.publish(weights(5))

    lacking = team.publisher.bring(wait_s=MOMENT_S)

    assert [worker.name for worker in lacking] == ["worker0", "worker1"]


def test_policies_do_not_stand_in_each_others_way(team: Team) -> None:
    slow, _ = team.objects
    slow.gate.clear()
    team.publisher.publish(weights(1))
    for update in (2, 3):
        for policy_id in ("policy", "opponent"):
            team.publisher.publish(weights(update, policy_id=policy_id))
    slow.gate.set()

    for policy_id in ("policy", "opponent"):
        assert slow.newest(policy_id, newer_than=Version(1, 2), timeout_s=SOON_S) is not None
    assert slow.came == [1, 3, 3]


def test_each_version_is_stored_once(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[Any] = []
    monkeypatch.setattr(team.host, "share", lambda value: stored.append(value) or Shared(value))

    team.publisher.publish(weights(1), wait_s=SOON_S)

    assert len(stored) == 1


def test_a_closed_publisher_waits_for_what_is_on_its_way(team: Team) -> None:
    slow, _ = team.objects
    slow.gate.clear()
    team.publisher.publish(weights(1))
    team.publisher.publish(weights(2))
    freeing = threading.Timer(MOMENT_S, slow.gate.set)
    freeing.start()

    team.publisher.close()

    assert slow.came == [1, 2]
    freeing.join(SOON_S)
    with pytest.raises(CommError, match="closed"):
        team.publisher.send_to(team.handles[0])


def test_a_reader_keeps_newer_weights_than_those_that_come() -> None:
    reader = HostWeightReader()
    for update in (2, 1):
        reader.set_weights(encode(weights(update)))

    found = reader.newest("policy")
    assert found is not None and found.version == Version(1, 2)


def test_weights_from_read_only_bytes_are_the_readers_own() -> None:
    head, body = encode(weights(2))
    body.flags.writeable = False
    reader = HostWeightReader()
    reader.set_weights(Encoded(head, body))

    found = reader.newest("policy")
    assert found is not None
    found.state["weight"].zero_()
    np.testing.assert_array_equal(body.view(np.float32), np.full(8, 2.0, np.float32))
