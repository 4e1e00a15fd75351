"""Ranks in processes of their own are updated by gloo; those that end, hang, answer twice or return do no harm."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ding_like.comm import DistributedWeightUpdater, WeightUpdateError, WeightUpdateWorker, update_worker
from ding_like.comm.channels import Weights
from ding_like.comm.update_worker import send_word
from ding_like.errors import CommError
from tests.comm.weights.rank_process import TIMEOUT_S, state

ROOT = Path(__file__).parents[3]


def tcp_store() -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=TIMEOUT_S))


class Rank:
    """Process of a rank, which prints "ready" first."""

    def __init__(self, role: str, port: int, rank: int, *more: int) -> None:
        arguments = [sys.executable, "-m", "tests.comm.weights.rank_process", role, *map(str, (port, rank, *more))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            arguments, env=environment, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def hears(self) -> str:
        """Return the next line that it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"the rank has ended: {self.process.stderr.read()}"  # type: ignore[union-attr]
        return line

    def end(self) -> tuple[int, str]:
        """Wait for its end, and return its status and last words."""
        assert self.process.stderr is not None
        return self.process.wait(TIMEOUT_S), self.process.stderr.read()


@contextmanager
def ranks(*of: Rank) -> Iterator[tuple[Rank, ...]]:
    """Kill what has not ended by itself."""
    try:
        yield of
    finally:
        for each in of:
            each.process.kill()
            each.process.communicate()


def failure_of(updater: DistributedWeightUpdater, *args: Any) -> WeightUpdateError:
    """Return what a push raises, without the frames that would keep its sockets."""
    try:
        handle = updater.push_weights(*args)
        if handle is not None:
            handle.wait()
    except WeightUpdateError as error:
        return error.with_traceback(None)
    pytest.fail("the push has not failed")


# --- in one process: gloo between threads


@pytest.mark.parametrize("kind", ["tcp", "prefix", "hash"])
def test_weights_go_by_gloo_over_any_store_of_torch(kind: str) -> None:
    makers = {"tcp": tcp_store, "prefix": lambda: dist.PrefixStore("run", tcp_store()), "hash": dist.HashStore}
    store = makers[kind]()
    got: list[Weights] = []
    workers = [WeightUpdateWorker(store, rank, on_weights=got.append, timeout_s=TIMEOUT_S) for rank in (1, 2)]
    with (
        ThreadPoolExecutor(2) as threads,
        DistributedWeightUpdater(store, state(1.0, numbers=9), 2, True, timeout_s=TIMEOUT_S) as updater,
    ):
        for value in (2.0, 3.0):
            steps = [threads.submit(worker.step, timeout_s=TIMEOUT_S) for worker in workers]
            updater.push_weights(state(value, numbers=9))
            assert [step.result(TIMEOUT_S) for step in steps] == ["update_weights"] * 2
    for worker in workers:
        worker.close()

    assert [each.state["w"].tolist() for each in got] == [[2.0] * 9] * 2 + [[3.0] * 9] * 2


def test_the_store_is_free_for_its_user_while_a_push_waits() -> None:
    store = tcp_store()
    with DistributedWeightUpdater(store, state(1.0, numbers=9), 1, False, timeout_s=0.5) as updater:
        handle = updater.push_weights()
        store.set("mine", "1")

        assert handle is not None and not handle.done()
        updater.close()


@pytest.mark.parametrize("said", ["no JSON", "{}", '{"pair": "a", "head": {"layout": 3}}'])
def test_nonsense_in_the_store_is_refused_and_answered(said: str) -> None:
    store = tcp_store()
    with WeightUpdateWorker(store, 1, on_weights=lambda _: None, timeout_s=TIMEOUT_S) as worker:
        for key, value in (("push", "p-1"), ("head_p-1", said), ("in", "update_weights")):
            store.set(f"NODE_1_{key}", value)

        with pytest.raises(CommError, match=r"the store has .*; expected JSON: a connection and a size"):
            worker.step(timeout_s=TIMEOUT_S)  # the store may have the word a moment after `set`

    assert store.get("NODE_1_out").startswith(b"failed: ")


def test_a_worker_that_begins_a_new_life_unnoticed_is_updated_by_the_next_push() -> None:
    store, got = tcp_store(), list[Weights]()
    with (
        ThreadPoolExecutor(1) as threads,
        DistributedWeightUpdater(store, state(1.0, numbers=9), 1, True, timeout_s=TIMEOUT_S) as updater,
    ):
        for _ in range(2):
            with WeightUpdateWorker(store, 1, on_weights=got.append, timeout_s=TIMEOUT_S) as worker:
                step = threads.submit(worker.step, timeout_s=TIMEOUT_S)
                updater.push_weights()
                step.result(TIMEOUT_S)

    assert len(got) == 2 and updater.version == 2


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pushes", "timeout_s"), [("dict", 150, 0.02), ("tcp", 60, 0.06)])
def test_no_rank_is_reported_updated_without_the_weights(kind: str, pushes: int, timeout_s: float) -> None:
    """Three ranks that are often later than the timeout, and begin new lives, under a trainer that is in a hurry."""
    store = {} if kind == "dict" else tcp_store()
    has: dict[int, float] = {}
    is_over = threading.Event()

    def live(rank: int) -> None:
        rng = random.Random(rank)

        def be_late() -> None:
            is_over.wait(2 * timeout_s if rng.random() < 0.15 else 0.0)

        def take(weights: Weights) -> None:
            be_late()
            has[rank] = weights.state["w"].unique().item()

        while not is_over.is_set():
            with WeightUpdateWorker(store, rank, on_weights=take, timeout_s=2.0) as worker, suppress(CommError):
                for _ in range(rng.randrange(1, 40)):
                    be_late()
                    worker.step(timeout_s=0.2)

    failures = 0
    with (
        ThreadPoolExecutor(3) as threads,
        DistributedWeightUpdater(store, state(0.0, numbers=9), 3, True, timeout_s=timeout_s) as updater,
    ):
        lives = [threads.submit(live, rank) for rank in (1, 2, 3)]
        try:
            for number in range(pushes):
                try:
                    updater.push_weights(state(float(number), numbers=9))
                    updated: tuple[int, ...] = (1, 2, 3)
                except WeightUpdateError as error:
                    updated, failures = error.updated, failures + 1
                assert all(has[rank] == number for rank in updated)
        finally:
            is_over.set()
        for each in lives:
            each.result(TIMEOUT_S)

    assert 0 < failures and updater.version == pushes - failures


# --- processes


@pytest.mark.slow
def test_a_rank_killed_half_way_is_named_and_its_next_life_is_updated() -> None:
    store = tcp_store()
    with ranks(Rank("worker", store.port, 1), Rank("dies", store.port, 2)) as (one, two):
        assert one.hears() == two.hears() == "ready"
        updater = DistributedWeightUpdater(store, state(1.0), 2, True, timeout_s=TIMEOUT_S)
        error = failure_of(updater, state(2.0))
        assert "it was lost while the weights were sent: Connection closed by peer" in error.failed[2]
        assert (error.updated, list(error.failed), error.not_tried) == ((1,), [2], ())
        assert (one.hears(), two.hears(), two.end()[0]) == ("got 2 whole", "half", -9)
        updater.push_weights(state(3.0), worker_ids=[1])
        assert one.hears() == "got 3 whole"

        with ranks(Rank("worker", store.port, 2)) as (again,):
            assert again.hears() == "ready"
            updater.push_weights(state(4.0))
            assert one.hears() == again.hears() == "got 4 whole"
            assert [send_word(store, rank, "shutdown", timeout_s=TIMEOUT_S) for rank in (1, 2)] == ["down", "down"]
            assert (one.end()[0], again.end()[0]) == (0, 0)
        updater.close()


@pytest.mark.slow
def test_a_rank_that_never_answers_is_named_and_the_others_are_updated() -> None:
    store = tcp_store()
    with ranks(Rank("silent", store.port, 1), Rank("worker", store.port, 2)) as (silent, two):
        updater = DistributedWeightUpdater(store, state(1.0, numbers=9), 2, True, timeout_s=3.0)
        assert silent.hears() == two.hears() == "ready"
        error = failure_of(updater, state(2.0, numbers=9))

        assert "it has not asked for the weights in time" in error.failed[1]
        assert error.updated == (2,) and two.hears() == "got 2 whole"
        updater.close()


@pytest.mark.slow
def test_a_worker_whose_trainer_is_killed_ends_with_a_clear_error() -> None:
    with ranks(Rank("trainer", 0, 0)) as (trainer,):
        port = int(trainer.hears())
        with ranks(Rank("worker", port, 1)) as (worker,):
            assert worker.hears() == "ready"
            trainer.process.kill()

            status, errors = worker.end()

    assert status == 1
    assert "CommError: the store is lost" in errors and "mostly the trainer, ended?" in errors


@pytest.mark.slow
def test_a_worker_whose_trainer_is_killed_half_way_keeps_its_weights_and_hears_the_next_trainer() -> None:
    """The store is here, so that it outlives the trainer."""
    store = tcp_store()
    target = state(0.0)
    worker = WeightUpdateWorker(store, 1, target, timeout_s=TIMEOUT_S)
    with ranks(Rank("trainer", store.port, 0)) as (trainer,):
        assert trainer.hears() == str(store.port)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(update_worker, "torch", KillsHalfWay(trainer))
            with pytest.raises(CommError, match="the trainer was lost while it sent weights"):
                worker.step(timeout_s=TIMEOUT_S)
        assert trainer.end()[0] == -9
    assert target["w"].eq(0.0).all()
    with (
        ThreadPoolExecutor(1) as threads,
        DistributedWeightUpdater(store, state(5.0), 1, True, timeout_s=TIMEOUT_S) as updater,
    ):
        step = threads.submit(worker.step, timeout_s=TIMEOUT_S)
        updater.push_weights()
        assert step.result(TIMEOUT_S) == "update_weights"
    worker.close()

    assert target["w"].eq(5.0).all()


class KillsHalfWay:
    """Stand-in for `torch` in the receiver's module, which kills the sender when the first numbers have come."""

    def __init__(self, sender: Rank) -> None:
        self.sender = sender

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    def empty(self, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        body = torch.zeros(nbytes, dtype=dtype)

        def watch() -> None:
            deadline = time.monotonic() + TIMEOUT_S
            while not body[:4].any() and time.monotonic() < deadline:
                pass
            self.sender.process.kill()

        threading.Thread(target=watch).start()
        return body
