"""Published weights come back whole and as announced, or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from torch import nn

from ding_like.comm.refusal import RefusedError
from ding_like.comm.weight_files import WrittenWeights, prune_weights, read_weights, write_weights
from ding_like.errors import CommError


def publish(folder: Path, attempt: int = 1, version: int = 0) -> WrittenWeights:
    return write_weights(folder, "policy", attempt, version, {"bias": torch.tensor([float(version)])})


def test_a_models_state_comes_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).state_dict()

    written = write_weights(tmp_path, "policy", 2, 30, state)
    found = read_weights(tmp_path, "policy", 2, 30, sha256=written.sha256)

    assert found.keys() == state.keys()
    assert all(found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in state.items())
    path = tmp_path / "policy" / "2-30.safetensors"
    assert list(tmp_path.rglob("*.*")) == [path] and path.stat().st_size == written.nbytes


def test_tensors_that_share_memory_or_are_views_are_saved_each(tmp_path: Path) -> None:
    vector = torch.arange(6.0)
    state = {"one": vector[:3], "same": vector[:3], "turned": vector.reshape(2, 3).T, "gradient": nn.Parameter(vector)}

    written = write_weights(tmp_path, "policy", 1, 0, state)
    found = read_weights(tmp_path, "policy", 1, 0, sha256=written.sha256)

    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_another_hash_than_announced_is_refused(tmp_path: Path) -> None:
    publish(tmp_path)

    with pytest.raises(CommError, match=r"1-0\.safetensors of policy have another hash"):
        read_weights(tmp_path, "policy", 1, 0, sha256="0" * 64)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    written = publish(tmp_path)
    path = tmp_path / "policy" / "1-0.safetensors"
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-1], "flipped": data[:-1] + bytes([data[-1] ^ 1]), "empty": b""}[damage])

    with pytest.raises(CommError, match="another hash"):
        read_weights(tmp_path, "policy", 1, 0, sha256=written.sha256)


def test_bytes_that_are_no_weights_are_refused_even_with_the_right_hash(tmp_path: Path) -> None:
    publish(tmp_path)
    (tmp_path / "policy" / "1-0.safetensors").write_bytes(b"nonsense")

    with pytest.raises(CommError, match="cannot be parsed"):
        read_weights(tmp_path, "policy", 1, 0, sha256=hashlib.sha256(b"nonsense").hexdigest())


def test_a_version_that_is_not_there_is_named(tmp_path: Path) -> None:
    written = publish(tmp_path)

    with pytest.raises(CommError, match=r"1-7\.safetensors of policy cannot be read: No such file"):
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
        write_weights(tmp_path / "in", "../out", 1, 0, {})

    assert list(tmp_path.iterdir()) == []
