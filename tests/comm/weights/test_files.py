"""Published weights come back whole and as announced, or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.comm.channels import Version, Weights
from ding_like.comm.rest.client import (
    WrittenWeights,
    prune_weights,
    read_weights,
    write_weights,
)
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.tensors import encode_weights, flatten_state, unflatten_state
from ding_like.errors import CommError


def publish(folder: Path, attempt: int = 1, version: int = 0) -> WrittenWeights:
    return write(folder, attempt, version, {"bias": torch.tensor([float(version)])})


def write(folder: Path, attempt: int, version: int, state: Mapping[str, torch.Tensor]) -> WrittenWeights:
    return write_weights(folder, encode_weights(Weights("policy", Version(attempt, version), state)))


def test_a_models_state_comes_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).state_dict()

    written = write(tmp_path, 2, 30, state)
    found = read_weights(tmp_path, "policy", 2, 30, sha256=written.sha256)

    assert found.keys() == state.keys()
    assert all(found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in state.items())
    path = tmp_path / "policy" / "2-30.safetensors"
    assert list(tmp_path.rglob("*.*")) == [path] and path.stat().st_size == written.nbytes


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    written = publish(tmp_path)
    path = tmp_path / "policy" / "1-0.safetensors"
    data = path.read_bytes()
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), b""):
        path.write_bytes(damaged)

        with pytest.raises(CommError, match=r"1-0\.safetensors of policy have another hash"):
            read_weights(tmp_path, "policy", 1, 0, sha256=written.sha256)


def test_bytes_that_are_no_weights_are_refused_even_with_the_right_hash(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "policy" / "1-0.safetensors").write_bytes(b"nonsense")

    with pytest.raises(CommError, match="cannot be parsed"):
        read_weights(tmp_path, "policy", 1, 0, sha256=hashlib.sha256(b"nonsense").hexdigest())


def test_a_version_that_is_not_there_is_named(tmp_path: Path) -> None:
    written = publish(tmp_path)

    with pytest.raises(CommError, match=r"1-7\.safetensors of policy are not there any more"):
        read_weights(tmp_path, "policy", 1, 7, sha256=written.sha256)


def test_the_newest_versions_are_kept_and_those_that_are_pinned(tmp_path: Path) -> None:
    for version in (8, 9, 10, 100):
        publish(tmp_path, 1, version)
    for version in range(6):
        publish(tmp_path, 2, version)
    prune_weights(tmp_path, "policy", keep={(1, 8)})

    kept = {path.stem for path in (tmp_path / "policy").iterdir()}

    assert kept == {"1-8", "1-10", "1-100", *(f"2-{version}" for version in range(6))}


def test_a_policys_name_is_never_a_path(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        write_weights(tmp_path / "in", encode_weights(Weights("../out", Version(1, 0), {})))

    assert list(tmp_path.iterdir()) == []


def test_foreign_files_and_endless_versions_are_neither_counted_nor_deleted(tmp_path: Path) -> None:
    for version in range(10):
        publish(tmp_path, 1, version)
    folder = tmp_path / "policy"
    foreign = [f"{1}-{'9' * 200}", "x-y", "notes", "1-", "-3", "1-2-3"]
    for name in foreign:
        (folder / f"{name}.safetensors").write_bytes(b"")

    prune_weights(tmp_path, "policy", keep=set())

    kept = {path.name.removesuffix(".safetensors") for path in folder.iterdir()}
    assert kept == {*foreign, *(f"1-{version}" for version in range(2, 10))}


def test_a_version_of_300_digits_names_nothing(tmp_path: Path) -> None:
    with pytest.raises(CommError, match="name no weights"):
        read_weights(tmp_path, "policy", 1, int("9" * 300), sha256="0" * 64)


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

    written = write(tmp_path, 1, 0, flatten_state(state))
    found = unflatten_state(read_weights(tmp_path, "policy", 1, 0, sha256=written.sha256))

    assert found.keys() == state.keys() and found["nothing"] == {}
    assert found["model"].keys() == model.state_dict().keys()
    assert all(torch.equal(found["model"][name], tensor) for name, tensor in model.state_dict().items())
    returns = found["returns"]
    assert returns.pop("sums").tolist() == [0.0, 1.0, 2.0]
    assert returns == {"count": 3, "mean": 0.1, "seen": True, "last": 0.5}
    types = {name: type(value) for name, value in returns.items()}
    assert types == {"count": int, "mean": float, "seen": bool, "last": float}


def test_a_value_that_cannot_travel_is_named() -> None:
    for value in ("text", None, [1, 2], 2**63, np.array(["a"]), {1: torch.zeros(1)}):
        with pytest.raises(CommError, match="extra"):
            flatten_state({"model": {}, "extra": value})


def test_names_that_no_state_has_are_refused() -> None:
    for names in (["a", "a/b"], ["a~odd"], ["/".join("a" * 50)]):
        with pytest.raises(CommError, match="weights have"):
            unflatten_state({name: torch.zeros(1) for name in names})
