"""What goes into a checkpoint comes out equal, and each kind of bad file has its own error."""

from __future__ import annotations

import os
import sys
import zipfile
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ding_like.errors import CheckpointError
from ding_like.utils.checkpoint import check_model_state, decode_state, encode_state, load_state, save_state
from ding_like.utils.seeding import make_rng, rng_state


def same(left: Any, right: Any) -> bool:
    """Return whether two trees are equal in types, dtypes, shapes and values, nan counting as itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, (np.ndarray, np.generic)):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return left == right or (left != left and right != right)


def round_trip(state: dict[Any, Any], folder: Path) -> dict[Any, Any]:
    save_state(folder / "state.pth.tar", state)
    return load_state(folder / "state.pth.tar")


numbers = st.none() | st.booleans() | st.integers(-(2**130), 2**130) | st.floats() | st.text() | st.binary()
arrays = hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
leaves = numbers | arrays | arrays.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(state=st.dictionaries(st.text(max_size=3), trees, max_size=3))
def test_any_state_comes_back_equal(state: dict[str, Any], tmp_path: Path) -> None:
    assert same(round_trip(state, tmp_path), state)


def test_value_comes_back_equal(tmp_path: Path) -> None:
    for value in [
        np.array(3.5),
        np.float64(3.5),
        np.bool_(True),
        np.zeros((0, 4), np.uint8),
        np.array([True, False]),
        np.array([2**63], np.uint64),
        np.arange(3, dtype=">i4"),
        np.array(["left", "right"]),
        torch.tensor([1.5], dtype=torch.bfloat16),
        torch.zeros(2, 0),
        (1, [2, (3,)]),
        b"",
        rng_state(make_rng(0, "x")),
        rng_state(np.random.Generator(np.random.MT19937(0))),
    ]:
        assert same(round_trip({"value": value}, tmp_path), {"value": value})


def test_views_of_arrays_come_back_equal(tmp_path: Path) -> None:
    for array in [np.arange(6).reshape(2, 3).T, np.arange(6)[::-2], np.broadcast_to(np.float32(1), (2, 3))]:
        assert same(round_trip({"value": array}, tmp_path)["value"], np.ascontiguousarray(array))


def test_loaded_array_may_be_written_to(tmp_path: Path) -> None:
    loaded = round_trip({"value": np.zeros(3)}, tmp_path)["value"]

    loaded[0] = 1

    assert loaded.tolist() == [1, 0, 0]


def test_sub_classes_become_plain(tmp_path: Path) -> None:
    point = namedtuple("point", "x y")
    state = {"cfg": EasyDict(a=1, b=EasyDict(c=[2])), "model": OrderedDict(w=1), "point": point(1, 2)}

    assert same(round_trip(state, tmp_path), {"cfg": {"a": 1, "b": {"c": [2]}}, "model": {"w": 1}, "point": (1, 2)})


def test_model_file_reads_with_torch_alone(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    save_state(tmp_path / "m.pth.tar", {"model": model.state_dict(), "last_iter": 7})

    loaded = torch.load(tmp_path / "m.pth.tar", weights_only=True)

    assert loaded["last_iter"] == 7
    model.load_state_dict(loaded["model"])


def test_view_of_a_large_tensor_is_saved_alone(tmp_path: Path) -> None:
    save_state(tmp_path / "state", {"row": torch.zeros(1_000_000)[:5]})

    assert (tmp_path / "state").stat().st_size < 10_000


def test_parameters_are_saved_without_their_graph(tmp_path: Path) -> None:
    loaded = round_trip({"w": torch.nn.Parameter(torch.ones(2))}, tmp_path)["w"]

    assert type(loaded) is torch.Tensor and not loaded.requires_grad


def test_value_that_cannot_be_saved_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    for value, fault in [
        ({1, 2}, r"state\.policy\.hooks\[1\] is a set, which a checkpoint cannot hold"),
        (np.array([object()]), r"state\.policy\.hooks\[1\] is an array of dtype object"),
        ({(1, 2): 3}, r"state\.policy\.hooks\[1\] has the key \(1, 2\) \(tuple\)"),
        ({"__kind__": 1}, r"state\.policy\.hooks\[1\] has the key '__kind__'"),
    ]:
        with pytest.raises(CheckpointError, match=fault):
            save_state(tmp_path / "state", {"policy": {"hooks": [0, value]}})
        assert os.listdir(tmp_path) == []


def test_encoding_leaves_its_input_alone() -> None:
    array = np.arange(3)
    state = {"list": [array]}

    decoded = decode_state(encode_state(state))

    assert state["list"][0] is array
    assert same(decoded, state)


def test_missing_file_is_answered_with_close_names(tmp_path: Path) -> None:
    (tmp_path / "ckpt_best.pth.tar").touch()

    with pytest.raises(CheckpointError, match=r"model .*ckpt_bst\.pth\.tar does not exist; did you mean ckpt_best"):
        load_state(tmp_path / "ckpt_bst.pth.tar", what="model")


def test_missing_file_is_answered_with_what_is_there(tmp_path: Path) -> None:
    for i in range(8):
        (tmp_path / f"iteration_{i}.pth.tar").touch()

    with pytest.raises(CheckpointError, match=r"its folder has iteration_0.*iteration_4\.pth\.tar and 3 more"):
        load_state(tmp_path / "x")


def test_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist, nor does its folder"):
        load_state(tmp_path / "no" / "x")


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder; give a file in it"):
        load_state(tmp_path)


def make_torn(path: Path, num_bytes: int) -> None:
    save_state(path, {"w": torch.zeros(1000)})
    path.write_bytes(path.read_bytes()[:num_bytes])


def make_flipped(path: Path) -> None:
    save_state(path, {"w": torch.zeros(1000)})
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


class Code:
    def __reduce__(self) -> tuple[Callable[[int], Any], tuple[int]]:
        return sys.exit, (3,)


def make_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda path: make_torn(path, 0), r"torn or damaged \(0 bytes\)"),
        (lambda path: make_torn(path, 3), r"torn or damaged \(3 bytes\)"),
        (lambda path: make_torn(path, 2000), r"torn or damaged \(2000 bytes\)"),
        (make_flipped, "torn or damaged"),
        (lambda path: path.write_text("hello"), r"not a file of torch.save \(it begins with b'hell'\)"),
        (lambda path: path.write_bytes(b"\x80\x04K\x01."), "is a bare pickle.* refused"),
        (lambda path: torch.save({"a": Code()}, path), "holds an object of sys.exit.* refused"),
        (lambda path: torch.save({"a": np.zeros(2)}, path), "holds an object of numpy.* refused"),
        (lambda path: torch.save([1, 2], path), "holds a list, not a dict"),
        (make_zip, "is a zip file, but torch cannot read it"),
    ],
    ids=["empty", "3 bytes", "cut", "bit flip", "text", "pickle", "code", "numpy", "list", "zip"],
)
def test_bad_file_gets_one_clear_line(make: Callable[[Path], Any], fault: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pth.tar"
    make(path)

    with pytest.raises(CheckpointError, match=fault) as caught:
        load_state(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fitting_model_state_passes() -> None:
    state = torch.nn.Linear(2, 3).state_dict()

    check_model_state(torch.nn.Linear(2, 3).state_dict(), state, path="m.pth.tar")


def test_every_fault_of_a_model_state_is_in_one_error() -> None:
    expected = {"a": torch.zeros(2), "b": torch.zeros(2, 3), "c": torch.zeros(1), "e": torch.zeros(1)}
    got = {"a": torch.zeros(2), "b": torch.zeros(4, 3), "d": torch.zeros(1), "e": 1.0}

    with pytest.raises(CheckpointError) as caught:
        check_model_state(expected, got, path="m.pth.tar")

    assert "missing c; unexpected d; of another shape b (4, 3) instead of (2, 3), e float instead of (1,)" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("sizes", "prefix", "fix"),
    [
        ((6, 8, 2), "", "trained on an env with other observations or actions: use the config of the run"),
        ((4, 8, 3), "", "trained on an env with other observations or actions: use the config of the run"),
        ((4, 16, 2), "", "Give policy.model the values it was trained with"),
        ((4, 8, 2), "actor.", "It is of another policy or network: use the config of the run that saved it"),
    ],
    ids=["observations", "actions", "hidden", "policy"],
)
def test_the_fix_fits_the_part_of_the_model_that_differs(sizes: tuple[int, ...], prefix: str, fix: str) -> None:
    def state(n_in: int, n_hidden: int, n_out: int) -> dict[str, torch.Tensor]:
        return torch.nn.Sequential(torch.nn.Linear(n_in, n_hidden), torch.nn.Linear(n_hidden, n_out)).state_dict()

    got = {prefix + name: tensor for name, tensor in state(*sizes).items()}

    with pytest.raises(CheckpointError, match=fix):
        check_model_state(state(4, 8, 2), got, path="m.pth.tar")


def test_model_state_that_is_no_dict_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"m\.pth\.tar holds a list where a model's state belongs"):
        check_model_state({}, [1], path="m.pth.tar")
