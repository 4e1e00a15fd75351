"""Stores of every kind keep words, wait for them by a deadline, and say when they are lost."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import FileStore
from torch.distributed import HashStore, PrefixStore, TCPStore

from ding_like.comm.update_worker import NodeStore
from ding_like.errors import CommError

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
