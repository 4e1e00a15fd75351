"""Segments and weights go through the coordinator unharmed, and nothing else does."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import torch
from torch import nn

import ding_like
from ding_like.comm.channels import Version, Weights
from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.keys import load_keys, make_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import (
    HttpCoordinator,
    StreamedFiles,
    prune_weights,
    read_weights,
    weights_file,
    write_weights,
)
from ding_like.comm.rest.messages import RefusedError, Signer
from ding_like.comm.tensors import FlatState, encode_weights, flatten_state, unflatten_state
from ding_like.data.segment_file import SegmentMeta, read_segment, segment_file, write_segment
from ding_like.errors import CommError
from ding_like.pipeline.parallel.coordinator import LockedService
from tests.pipeline.parallel.service_parts import make_core

SECRET = "5" * 64


class Net:
    """Server with folders for files, and registered clients of both roles: collector-c and learner-l."""

    def __init__(self, folder: Path) -> None:
        self.core = make_core(folder)
        self.key_file = folder / "keys.json"
        self.keys = make_keys(self.key_file)
        self.segments, self.weights = folder / "segments", folder / "weights"
        self.service = LockedService(self.core)
        self.server = CoordinatorServer(self.service, self.keys, segments=self.segments, weights=self.weights)
        self.server.start()
        self.collector, self.learner = self.client("collector", "c"), self.client("learner", "l")
        self.service.register(m.Register("collector", "host", 1, ding_like.__version__, "raw", secret=SECRET))
        self.service.register(m.Register("learner", "host", 1, ding_like.__version__, "raw", secret=SECRET))
        self._turns = itertools.count(1)

    def client(self, role: str, incarnation: str) -> HttpCoordinator:
        key = load_keys(self.key_file)[role]
        client = HttpCoordinator(self.server.url, role=role, key=key, retry_s=0.3)
        client.register(m.Register(role, "host", 1, ding_like.__version__, incarnation))
        return client

    def put(self, path: str, data: bytes, *, role: str = "collector", worker: str = "", **headers: str) -> Any:
        """Send a file as collector-raw or learner-raw."""
        signer = Signer(role, self.keys[role], secret=SECRET, clock=time.time)
        signer.offset_s = 0.0
        turn = f"raw:{next(self._turns)}"
        signed, _ = signer.sign("PUT", path, data, turn=turn, worker=worker or f"{role}-raw")
        sent = {"X-DL-Protocol": str(m.PROTOCOL), "Content-Type": m.OCTETS, **signed, **headers}
        return requests.put(self.server.url + path, data=data, headers=sent, timeout=60)

    def close(self) -> None:
        self.collector.close()
        self.learner.close()
        self.server.close()
        self.core.close()

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.segments)) for path in self.segments.rglob("*") if path.is_file())


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    made = Net(tmp_path)
    yield made
    made.close()


def test_a_segment_comes_to_the_learner_as_it_left_the_collector(net: Net, tmp_path: Path) -> None:
    there, here = StreamedFiles(net.collector, folder=tmp_path), StreamedFiles(net.learner, folder=tmp_path)
    columns = {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}
    name = "collector-c.00000000"
    written = write_segment(there.segments, name, columns, SegmentMeta("t", 1, "collector-c", 0, 0, 4))

    there.share(segment_file(there.segments, name))
    here.fetch_segment(name)
    read, _ = read_segment(here.segments, name, rows=4, sha256=written.sha256, nbytes=written.nbytes)

    assert (read["x"] == columns["x"]).all()
    assert not list(there.segments.iterdir()), "the collector's copy has gone"
    here.forget_segment(name)
    assert not list(here.segments.iterdir())
    there.close()
    here.close()
    assert not list(tmp_path.glob("ding-files-*"))


def mostly_frozen(version: int) -> Weights:
    state = {"frozen": torch.arange(100_000, dtype=torch.float32), "head": torch.full((100,), float(version))}
    return Weights("policy", Version(1, version), state)


class Received:
    """Counter of the bytes of files that a client fetches, which may change them on their way."""

    def __init__(self, client: HttpCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.change: Callable[[bytes], bytes] = lambda data: data
        get_file = client.get_file

        def get(path: str) -> bytes:
            data = self.change(get_file(path))
            self.sizes.append(len(data))
            return data

        monkeypatch.setattr(client, "get_file", get)


def fetch(net: Net, there: StreamedFiles, here: StreamedFiles, version: int) -> FlatState:
    """Publish a version, and return what comes to a collector."""
    written = write_weights(there.weights, encode_weights(mostly_frozen(version)))
    there.share(weights_file(there.weights, "policy", 1, version))
    here.fetch_weights("policy", 1, version, sha256=written.sha256)
    return read_weights(here.weights, "policy", 1, version, sha256=written.sha256)


@pytest.fixture
def streams(net: Net, tmp_path: Path) -> Iterator[tuple[StreamedFiles, StreamedFiles]]:
    there = StreamedFiles(net.learner, folder=tmp_path)
    here = StreamedFiles(net.collector, folder=tmp_path, asks_for_delta=True)
    yield there, here
    there.close()
    here.close()


def test_of_later_weights_only_what_changed_is_sent(
    net: Net, streams: tuple[StreamedFiles, StreamedFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    received = Received(net.collector, monkeypatch)

    for version in (1, 2, 3):
        state = fetch(net, *streams, version)
        assert all(torch.equal(state[name], tensor) for name, tensor in mostly_frozen(version).state.items())

    assert len(list(streams[1].weights.glob("*/*"))) == 1, "one version at a time"
    whole, *later = received.sizes
    assert whole > 400_000 and len(later) == 2 and max(later) < 4 * 4096


def test_where_a_delta_does_not_help_the_whole_is_sent(
    net: Net, streams: tuple[StreamedFiles, StreamedFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    received = Received(net.collector, monkeypatch)
    fetch(net, *streams, 1)
    _, here = streams
    for version, fault in enumerate(["delta is broken", "base is gone here", "base is gone there", "other base"], 2):
        base = f"policy/1-{version - 1}.safetensors"
        received.change = lambda data: data
        if fault == "delta is broken":
            received.change = lambda data: data if len(data) > 100_000 else data[:-1] + bytes([data[-1] ^ 1])
        elif fault == "other base":
            (here.weights / base).write_bytes((here.weights / base).read_bytes()[::-1])
        else:
            ((here if fault == "base is gone here" else net).weights / base).unlink()

        state = fetch(net, *streams, version)

        assert all(torch.equal(state[name], each) for name, each in mostly_frozen(version).state.items()), fault
        assert received.sizes[-1] > 400_000, fault


def test_a_version_to_begin_from_is_two_numbers(net: Net) -> None:
    net.learner.put_file("/v1/weights/policy/1-1", b"abc")

    for have in ("x", "1", "../1-1", "1-" + "9" * 20):
        with pytest.raises(RefusedError):
            net.collector.get_file(f"/v1/weights/policy/1-1?have={have}")
            pytest.fail(f"{have} is taken")


def test_the_same_again_is_fine_and_something_else_is_not(net: Net) -> None:
    net.collector.put_file("/v1/segments/collector-c.0", b"abc")
    net.collector.put_file("/v1/segments/collector-c.0", b"abc")

    with pytest.raises(RefusedError, match="other bytes"):
        net.collector.put_file("/v1/segments/collector-c.0", b"xyz")
    assert (net.segments / "collector-c.0.safetensors").read_bytes() == b"abc"


def test_a_worker_brings_no_segments_of_another_and_versions_have_few_digits(net: Net) -> None:
    with pytest.raises(RefusedError, match="named after workers"):
        net.collector.put_file("/v1/segments/collector-raw.0", b"abc")
    assert net.put("/v1/segments/collector-c.0", b"abc", worker="collector-c").status_code == 401
    for version in ("1-" + "9" * 300, "1-" + "9" * 5000, "9" * 16 + "-1"):
        assert net.put(f"/v1/weights/policy/{version}", b"abc", role="learner").status_code == 400
        with pytest.raises(RefusedError, match="up to 15 digits"):
            net.collector.get_file(f"/v1/weights/policy/{version}")
    assert not net.segments.exists() and not net.weights.exists()


def test_a_file_above_the_limit_is_refused_and_a_client_sends_none(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "MAX_FILE", 1000)

    assert net.put("/v1/segments/collector-raw.1", b"a" * 1001).status_code == 413
    assert net.put("/v1/segments/collector-raw.1", b"a" * 1000).status_code == 200
    with pytest.raises(RefusedError, match="1001 bytes; at most 1000"):
        net.collector.put_file("/v1/segments/collector-c.1", b"a" * 1001)
    assert net.files() == ["collector-raw.1.safetensors"]


def test_links_pipes_and_what_is_not_there_are_not_given_out(net: Net, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    net.segments.mkdir()
    (net.segments / "link.safetensors").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", net.segments / "name.safetensors")
    os.mkfifo(net.segments / "pipe.safetensors")

    for name in ("link", "name", "pipe", "absent"):
        with pytest.raises(RefusedError, match=f"there is no {name}.safetensors"):
            net.learner.get_file(f"/v1/segments/{name}")
            pytest.fail(f"{name} is given out")


def test_a_folder_that_is_a_link_is_neither_read_nor_written(net: Net, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/1-1.safetensors").write_text("secret")
    net.weights.mkdir()
    (net.weights / "policy").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(RefusedError, match="there is no"):
        net.collector.get_file("/v1/weights/policy/1-1")
    with pytest.raises(RefusedError, match="no folder of its policy"):
        net.learner.put_file("/v1/weights/policy/1-2", b"abc")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["1-1.safetensors"]


def test_a_full_disk_is_said_and_may_be_tried_again(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ding_like.comm.http_server.atomic_write", full)

    with pytest.raises(CommError, match="disk is full"):
        net.collector.put_file("/v1/segments/collector-c.1", b"abc")


def test_a_coordinator_without_folders_takes_no_files(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    server = CoordinatorServer(LockedService(core), None)
    server.start()
    client = HttpCoordinator(server.url, role="collector", key=None, retry_s=0.2)
    client.register(m.Register("collector", "host", 1, ding_like.__version__, "c"))

    with pytest.raises(RefusedError, match="share a folder"):
        client.put_file("/v1/segments/collector-c.1", b"abc")
    client.close()
    server.close()
    core.close()


def publish(folder: Path, attempt: int = 1, version: int = 0) -> m.PolicyVersion:
    return write(folder, attempt, version, {"bias": torch.tensor([float(version)])})


def write(folder: Path, attempt: int, version: int, state: Mapping[str, torch.Tensor]) -> m.PolicyVersion:
    return write_weights(folder, encode_weights(Weights("policy", Version(attempt, version), state)))


def test_a_file_that_is_not_as_announced_is_refused(tmp_path: Path) -> None:
    written = publish(tmp_path)
    path = tmp_path / "policy" / "1-0.safetensors"
    data = path.read_bytes()
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), b""):
        path.write_bytes(damaged)
        with pytest.raises(CommError, match=r"1-0\.safetensors of policy have another hash"):
            read_weights(tmp_path, "policy", 1, 0, sha256=written.sha256)
    path.write_bytes(b"nonsense")
    with pytest.raises(CommError, match="cannot be parsed"):
        read_weights(tmp_path, "policy", 1, 0, sha256=hashlib.sha256(b"nonsense").hexdigest())
    with pytest.raises(CommError, match=r"1-7\.safetensors of policy are not there any more"):
        read_weights(tmp_path, "policy", 1, 7, sha256=written.sha256)


def test_names_and_versions_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        write_weights(tmp_path / "in", encode_weights(Weights("../out", Version(1, 0), {})))
    with pytest.raises(CommError, match="name no weights"):
        read_weights(tmp_path, "policy", 1, int("9" * 300), sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_the_newest_versions_are_kept_and_those_that_are_pinned_and_foreign_files(tmp_path: Path) -> None:
    for attempt, version in [(1, 8), (1, 9), (1, 10), (1, 100), *((2, version) for version in range(6))]:
        publish(tmp_path, attempt, version)
    foreign = {f"{1}-{'9' * 200}", "x-y", "notes", "1-", "-3", "1-2-3"}
    for name in foreign:
        (tmp_path / "policy" / f"{name}.safetensors").write_bytes(b"")

    prune_weights(tmp_path, "policy", keep={(1, 8)})

    kept = {path.name.removesuffix(".safetensors") for path in (tmp_path / "policy").iterdir()}
    assert kept == {*foreign, "1-8", "1-10", "1-100", *(f"2-{version}" for version in range(6))}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder is a link"])
def test_what_is_no_file_of_its_own_is_not_read(tmp_path: Path, kind: str) -> None:
    written = publish(tmp_path)
    path = tmp_path / "policy" / "1-0.safetensors"
    real = tmp_path / "elsewhere"
    if kind == "folder is a link":
        path.parent.rename(real)
        path.parent.symlink_to(real)
    else:
        path.rename(real)
        {"link": path.symlink_to, "second name": path.hardlink_to, "pipe": lambda _: os.mkfifo(path)}[kind](real)

    with pytest.raises(CommError, match="cannot be read"):
        read_weights(tmp_path, "policy", 1, 0, sha256=written.sha256)


def test_a_whole_state_comes_back_with_its_types(tmp_path: Path) -> None:
    model = nn.ModuleDict({"arm/left~": nn.Linear(2, 1), "norm": nn.BatchNorm1d(2)})
    state = {
        "model": model.state_dict(),
        "returns": {"count": 3, "mean": 0.1, "seen": True, "last": np.float32(0.5), "sums": np.arange(3.0)},
        "nothing": {},
    }

    written = write(tmp_path, 2, 30, flatten_state(state))
    found = unflatten_state(read_weights(tmp_path, "policy", 2, 30, sha256=written.sha256))

    (path,) = tmp_path.rglob("*.*")
    assert path == tmp_path / "policy" / "2-30.safetensors" and path.stat().st_size == written.nbytes

    assert found.keys() == state.keys() and found["nothing"] == {}
    assert found["model"].keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert found["model"][name].dtype == tensor.dtype and torch.equal(found["model"][name], tensor)
    returns = found["returns"]
    assert returns.pop("sums").tolist() == [0.0, 1.0, 2.0]
    assert returns == {"count": 3, "mean": 0.1, "seen": True, "last": 0.5}
    types = {name: type(value) for name, value in returns.items()}
    assert types == {"count": int, "mean": float, "seen": bool, "last": float}


def test_values_and_names_that_cannot_travel_are_named() -> None:
    for value in ("text", None, [1, 2], 2**63, np.array(["a"]), {1: torch.zeros(1)}):
        with pytest.raises(CommError, match="extra"):
            flatten_state({"model": {}, "extra": value})
    for names in (["a", "a/b"], ["a~odd"], ["/".join("a" * 50)]):
        with pytest.raises(CommError, match="weights have"):
            unflatten_state({name: torch.zeros(1) for name in names})
