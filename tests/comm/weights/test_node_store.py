"""Stores of every kind keep words, wait for them by a deadline, and say when they are lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.distributed import HashStore, PrefixStore, TCPStore

from ding_like.comm import DistributedWeightUpdater, WeightUpdateError, WeightUpdateWorker
from ding_like.comm.channels import Version, Weights
from ding_like.comm.update_worker import LostTransferError, NodeStore, send_word
from ding_like.errors import CommError
from tests.comm.weights.test_encode import TensorDictLike, tensordict_of

KINDS = ("dict", "hash", "file", "tcp", "prefix")


def tcp_store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))


def make(kind: str, folder: Path) -> Any:
    """Make a store within a test, which closes its sockets with it."""
    makers: dict[str, Any] = {
        "dict": dict,
        "hash": HashStore,
        "file": lambda: FileStore(str(folder / "store"), -1),
        "tcp": tcp_store,
        "prefix": lambda: PrefixStore("run", tcp_store()),
    }
    return makers[kind]()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_set_is_read_until_it_is_deleted(kind: str, tmp_path: Path) -> None:
    raw = make(kind, tmp_path)
    store = NodeStore(raw)

    store.set("key", "wört")

    assert store.get("key", timeout_s=0.0) == "wört"
    assert NodeStore(raw).get("key", timeout_s=1.0) == "wört"
    store.delete("key")
    store.delete("key")
    assert store.get("key", timeout_s=0.01) is None


@pytest.mark.parametrize("kind", ["dict", "tcp"])
def test_a_waiting_thread_is_woken_by_another_one_with_the_same_store(kind: str, tmp_path: Path) -> None:
    raw = make(kind, tmp_path)
    found: list[str | None] = []
    waiting = threading.Thread(target=lambda: found.append(NodeStore(raw).get("key", timeout_s=60.0)))
    waiting.start()

    # While that one waits; torch's TCPStore would let this thread in only afterwards.
    NodeStore(raw).set("key", "word")
    waiting.join(60.0)

    assert found == ["word"]


def test_what_other_code_writes_into_a_plain_dict_is_found() -> None:
    plain: dict[str, str] = {}
    store = NodeStore(plain)
    writing = threading.Timer(0.01, plain.__setitem__, ("key", "text"))
    writing.start()

    assert store.get("key", timeout_s=60.0) == "text"
    writing.join()


def test_two_dicts_are_two_stores() -> None:
    one, other = NodeStore({}), NodeStore({})

    one.set("key", "word")

    assert other.get("key", timeout_s=0.0) is None


def test_a_store_whose_holder_has_ended_is_lost() -> None:
    holder = tcp_store()
    store = NodeStore(TCPStore("127.0.0.1", holder.port, is_master=False, timeout=timedelta(seconds=10)))
    del holder

    with pytest.raises(CommError, match="the store is lost .* mostly the trainer, ended"):
        for _ in range(3):  # what is written to a socket that the other end has closed may be lost without a word
            store.get("key", timeout_s=5.0)


class NoWait:
    """Store with set, get and delete_key alone."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key]

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None


def test_a_store_that_cannot_wait_is_asked_once() -> None:
    store = NodeStore(NoWait())

    assert store.get("key", timeout_s=60.0) is None
    store.set("key", "word")
    assert store.get("key", timeout_s=60.0) == "word"


def test_what_is_no_store_is_refused() -> None:
    for raw in (None, [], "store", 3):
        with pytest.raises(CommError, match="is no store: give a dict, a TCPStore"):
            NodeStore(raw)


def policy(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


def served(stack: ExitStack, store: Any, worker: WeightUpdateWorker) -> None:
    """Serve in a thread until the test is over."""

    def end() -> None:
        assert send_word(store, worker.rank, "shutdown", timeout_s=60.0) == "down"
        thread.join(60.0)
        assert not thread.is_alive()

    thread = threading.Thread(target=worker.serve)
    thread.start()
    stack.callback(end)


def updater_of(store: Any, source: Any, **settings: Any) -> DistributedWeightUpdater:
    """Return the updater of one worker."""
    return DistributedWeightUpdater(store, source, 1, True, **{"timeout_s": 60.0, **settings})


def push(updater: DistributedWeightUpdater, worker: WeightUpdateWorker) -> None:
    """Push while the worker takes a step."""
    with ThreadPoolExecutor(1) as threads:
        step = threads.submit(worker.step, timeout_s=60.0)
        updater.push_weights()
        assert step.result(60.0) == "update_weights"


# --- words


def test_continue_collects_and_the_status_is_busy_meanwhile() -> None:
    store: dict[str, bytes] = {}
    statuses: list[bytes] = []
    worker = WeightUpdateWorker(store, 1, policy(), on_continue=lambda: statuses.append(store["NODE_1_status"]))
    assert store["NODE_1_status"] == b"done" and worker.step() is None

    send_word(store, 1, "continue")
    word = worker.step()

    assert word == "continue" and statuses == [b"busy"] and store["NODE_1_status"] == b"done"
    assert "NODE_1_in" not in store and "NODE_1_out" not in store


def test_a_seed_is_set_and_the_seed_in_use_is_written() -> None:
    store: dict[str, bytes] = {}
    seeds: list[int] = []
    worker = WeightUpdateWorker(store, 2, policy(), on_seed=lambda seed: seeds.append(seed) or seed + 10)
    store["NODE_2_in"] = b"seeding_7"

    assert worker.step() == "seeding_7"

    assert seeds == [7] and store["NODE_2_seed"] == b"17" and store["NODE_2_out"] == b"seeded"
    texts: dict[str, Any] = {"NODE_1_in": "seeding_3"}  # text, as a dict of strings has it
    WeightUpdateWorker(texts, 1, policy()).step()
    assert texts["NODE_1_seed"] == b"3"


def test_weights_that_are_lost_on_their_way_do_not_end_serving() -> None:
    class Loses(WeightUpdateWorker):
        def _receive(self, push_id: str) -> Weights | None:
            raise LostTransferError("the trainer was lost.")

    store: dict[str, bytes] = {"TRAINER_status": b"alive"}
    with ExitStack() as stack:
        served(stack, store, Loses(store, 1, policy()))
        for _ in range(2):
            assert send_word(store, 1, "update_weights", timeout_s=60.0) == "failed: the trainer was lost."


def test_an_unknown_word_is_a_runtime_error_and_is_answered() -> None:
    for word in ("stop", "seeding_", "seeding_x", "seeding_-1", "Continue", ""):
        store: dict[str, Any] = {"NODE_1_in": word}
        worker = WeightUpdateWorker(store, 1, policy())

        with pytest.raises(RuntimeError, match="worker rank 1 received the word"):
            worker.step()

        assert store["NODE_1_out"].startswith(b"failed: worker rank 1 received the word"), word
        assert store["NODE_1_status"] == b"done", word


def test_a_word_to_an_absent_rank_times_out() -> None:
    store: dict[str, bytes] = {"NODE_1_out": b"down"}  # of an earlier life

    with pytest.raises(CommError, match=r"worker rank 1 has not answered 'shutdown' within 0\.01 s"):
        send_word(store, 1, "shutdown", timeout_s=0.01)

    assert "NODE_1_in" not in store


def test_serving_without_a_trainer_or_its_words_ends_by_its_deadline() -> None:
    with pytest.raises(CommError, match=r"worker rank 1 has found no trainer in the store within 0\.01 s"):
        WeightUpdateWorker({}, 1, policy(), timeout_s=0.01).serve()
    with pytest.raises(CommError, match=r"worker rank 1 has received no word for 0\.01 s"):
        WeightUpdateWorker({"TRAINER_status": b"alive"}, 1, policy(), idle_timeout_s=0.01).serve()


def test_a_worker_has_a_rank_from_one_and_a_place_for_weights() -> None:
    for rank in (0, -1, True, "1"):
        with pytest.raises(ValueError, match="expected a worker's rank, 1 or more"):
            WeightUpdateWorker({}, rank, policy())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a target"):
        WeightUpdateWorker({}, 1)


# --- weights


def test_pushed_weights_are_in_every_target_when_the_push_returns() -> None:
    store: dict[str, bytes] = {}
    source, module = policy(0), policy(1)
    targets: list[Any] = [module, tensordict_of(policy(2)), dict(policy(3).state_dict())]
    with ExitStack() as stack:
        updater = stack.enter_context(DistributedWeightUpdater(store, source, 3, True, timeout_s=60.0))
        for rank, target in enumerate(targets, 1):
            served(stack, store, WeightUpdateWorker(store, rank, target))

        updater.push_weights()

    expected = source.state_dict()["weight"]
    assert torch.equal(module.state_dict()["weight"], expected)
    assert isinstance(targets[1], TensorDictLike) and torch.equal(targets[1].entries["weight"], expected)
    assert torch.equal(targets[2]["weight"], expected)


def test_weights_that_the_target_does_not_take_fail_the_push_with_the_reason() -> None:
    store: dict[str, bytes] = {}
    worker = WeightUpdateWorker(store, 1, nn.Linear(5, 2))
    with (
        ThreadPoolExecutor(1) as threads,
        DistributedWeightUpdater(store, policy(), 1, True, timeout_s=60.0) as updater,
    ):
        stepping = threads.submit(worker.step, timeout_s=60.0)

        with pytest.raises(
            WeightUpdateError, match=r"got status \"failed: the weights have 'weight'.*of another model"
        ):
            updater.push_weights()

        with pytest.raises(CommError, match="of another model"):
            stepping.result(60.0)


def test_a_worker_that_is_busy_for_too_long_is_updated_by_the_next_push() -> None:
    store: dict[str, bytes] = {}
    target = policy(1)
    worker = WeightUpdateWorker(store, 1, target)
    with updater_of(store, policy(), timeout_s=0.05) as hasty:
        with pytest.raises(WeightUpdateError, match=r"rank 1: it has not answered within 0\.05 s"):
            hasty.push_weights()
    assert worker.step() is None  # the word was taken back
    with updater_of(store, policy()) as updater:
        push(updater, worker)
    assert torch.equal(target.state_dict()["weight"], policy().state_dict()["weight"])


def test_a_word_that_is_read_twice_is_served_once() -> None:
    store: dict[str, bytes] = {}
    got: list[Weights] = []
    worker = WeightUpdateWorker(store, 1, on_weights=got.append)
    with updater_of(store, policy()) as updater:
        push(updater, worker)

        store["NODE_1_in"] = b"update_weights"
        assert worker.step() == "update_weights"

    assert len(got) == 1 and "NODE_1_out" not in store


def test_a_subclass_serves_a_trainer_that_names_no_push_and_does_what_it_likes() -> None:
    """As TorchRL's trainer writes none."""

    class Own(WeightUpdateWorker):
        got: list[str] = []

        def _receive(self, push_id: str) -> Weights | None:
            return Weights("policy", Version(0, 1), {"w": torch.ones(1)})

        def update(self, weights: Weights) -> None:
            self.got.append(f"weights {weights.version.update}")

        def collect(self) -> None:
            self.got.append("rows")

        def seed(self, number: int) -> int:
            return number + 1

    store: dict[str, Any] = {}
    worker = Own(store, 1)
    for _ in range(2):
        store["NODE_1_in"] = b"update_weights"
        assert worker.step() == "update_weights" and store.pop("NODE_1_out") == b"updated"
    send_word(store, 1, "continue")
    worker.step()
    store["NODE_1_in"] = b"seeding_7"
    worker.step()

    assert worker.got == ["weights 1"] * 2 + ["rows"] and store["NODE_1_seed"] == b"8"
    assert "NODE_1_done" not in store
