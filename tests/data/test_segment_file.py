"""A segment is what its announcement says, or it is refused by what is wrong with it."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import pickle
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from ding_like.data.segment_file import (
    SegmentError,
    SegmentMeta,
    WrittenSegment,
    is_column_file,
    load_columns,
    read_segment,
    save_columns,
    set_aside,
    write_segment,
)
from ding_like.errors import CheckpointError
from ding_like.utils.checkpoint import save_state

META = SegmentMeta("task-1", 2, "collector-x", 3, 40, 9)


def write(folder: Path, name: str = "worker.00000001", rows: int = 8) -> WrittenSegment:
    rng = np.random.default_rng(len(name) + rows)
    columns = {
        "obs": rng.standard_normal((rows, 4)).astype(np.float32),
        "action": rng.integers(2, size=rows),
        "terminated": rng.random(rows) < 0.5,
    }
    return write_segment(folder, name, columns, META)


def read(folder: Path, written: WrittenSegment, **changes: Any) -> Any:
    said = dict(rows=written.rows, sha256=written.sha256, nbytes=written.nbytes)
    return read_segment(folder, changes.pop("name", written.name), **{**said, **changes})


def code_of(folder: Path, written: WrittenSegment, **changes: Any) -> str:
    with pytest.raises(SegmentError) as caught:
        read(folder, written, **changes)
    return caught.value.code


def path_of(folder: Path, written: WrittenSegment) -> Path:
    return folder / f"{written.name}.safetensors"


def test_columns_and_origin_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"obs": rng.standard_normal((5, 2)), "step": np.arange(5), "done": np.arange(5) == 4}

    written = write_segment(tmp_path, "w.1", columns, META)
    found, meta = read(tmp_path, written)

    assert meta == META and list(found) == list(columns) and written.rows == 5
    assert all(found[name].tobytes() == column.tobytes() for name, column in columns.items())
    assert [path.name for path in tmp_path.iterdir()] == ["w.1.safetensors"]


def test_bad_segments_are_told_apart(tmp_path: Path) -> None:
    kinds = {}
    for kind in ("cut", "flipped", "empty", "gone", "swapped"):
        written = write(tmp_path, f"worker.{kind}")
        path = path_of(tmp_path, written)
        data = bytearray(path.read_bytes())
        if kind == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif kind == "flipped":
            data[-3] ^= 1
            path.write_bytes(data)
        elif kind == "empty":
            path.write_bytes(b"")
        elif kind == "gone":
            path.unlink()
        else:
            os.replace(path_of(tmp_path, write(tmp_path, "worker.another-one")), path)
        kinds[kind] = code_of(tmp_path, written)

    assert kinds == {
        "cut": "truncated",
        "flipped": "corrupt",
        "empty": "truncated",
        "gone": "missing",
        "swapped": kinds["swapped"],
    }
    assert kinds["swapped"] in ("truncated", "corrupt")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "hardly"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    written = write(tmp_path)
    path = path_of(tmp_path, written)
    real = tmp_path / "elsewhere"
    path.rename(real)
    if kind == "link":
        path.symlink_to(real)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")

    assert code_of(tmp_path, written) == "foreign"


def test_a_file_with_a_second_name_or_in_an_exchanged_folder_is_not_read(tmp_path: Path) -> None:
    written = write(tmp_path / "data")
    (tmp_path / "second").hardlink_to(path_of(tmp_path / "data", written))
    assert code_of(tmp_path / "data", written) == "foreign"
    (tmp_path / "second").unlink()
    assert read(tmp_path / "data", written)

    (tmp_path / "data").rename(tmp_path / "real")
    (tmp_path / "data").symlink_to(tmp_path / "real")

    assert code_of(tmp_path / "data", written) == "foreign"


def test_what_is_set_aside_goes_into_no_link(tmp_path: Path) -> None:
    written = write(tmp_path / "data")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data" / "bad").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SegmentError, match="is a link"):
        set_aside(tmp_path / "data", [written.name])

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_name_is_never_a_path(tmp_path: Path) -> None:
    written = write(tmp_path)

    for name in ("../x", "/etc/passwd", "a/b", "", ".hidden", "x" * 200):
        assert code_of(tmp_path, written, name=name) == "foreign", name


def test_sizes_out_of_bounds_or_that_so_many_rows_cannot_have_are_not_read(tmp_path: Path) -> None:
    written = write(tmp_path, rows=20_000)  # of 25 bytes

    for nbytes in (0, -1, 65 << 20):
        assert code_of(tmp_path, written, nbytes=nbytes) == "schema", nbytes
    for row_bytes in (0, 10, 26, 10**9):
        assert code_of(tmp_path, written, row_bytes=row_bytes) == "schema", row_bytes
    assert read(tmp_path, written, row_bytes=25)


def test_a_sparse_file_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "w.1.safetensors"
    with open(path, "wb") as file:
        file.truncate(60 << 20)

    with pytest.raises(SegmentError, match="its rows take 200 and a header"):
        read_segment(tmp_path, "w.1", rows=8, sha256="0" * 64, nbytes=60 << 20, row_bytes=25)


def test_other_rows_than_announced_are_refused(tmp_path: Path) -> None:
    written = write(tmp_path)

    assert code_of(tmp_path, written, rows=7) == "schema"
    assert code_of(tmp_path, written, sha256="0" * 64) == "corrupt"


def with_header(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


def ours(**changes: str) -> bytes:
    """Return a segment of one column whose metadata are right but for `changes`."""
    meta = '{"task_id":"t","attempt":1,"worker_id":"w","number":1,"policy_version":0,"env_steps":3}'
    own = {"format": "ding_like segment 1", "columns": '["a"]', "rows": "3", "meta": meta}
    return bytes(save({"a": np.zeros(3)}, metadata={**own, **changes}))


DEEP = 50_000
FOREIGN = {
    "header nested": with_header(b"[" * DEEP + b"]" * DEEP),
    "header nested in dicts": with_header(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "metadata nested": ours(meta="[" * DEEP + "]" * DEEP),
    "metadata nested, brackets balanced": ours(meta="[" * 1500 + "]" * 1500),
    "columns nested": ours(columns="[" * DEEP + "]" * DEEP),
    "header huge": with_header(b'{"__metadata__":{"format":"' + b"x" * (1 << 19) + b'"}}'),
    "too many columns": bytes(
        save({f"c{n}": np.zeros(3) for n in range(600)}, metadata={"format": "ding_like segment 1"})
    ),
    "a list as a column": ours(columns="[[]]"),
    "columns no list": ours(columns="3"),
    "a column twice": ours(columns='["a","a"]'),
    "metadata of other types": ours(
        meta='{"task_id":1,"attempt":[],"worker_id":"w","number":1,"policy_version":0,"env_steps":3}'
    ),
    "metadata without fields": ours(meta="{}"),
    "a number of 5,000 digits": ours(meta="9" * 5000),
    "pickle": pickle.dumps({"a": 1}),
    "other safetensors": save({"a": np.zeros(3)}),
    "header too long": struct.pack("<Q", 2**63) + b"{}",
    "no header": b"\0" * 20,
    "header is a list": struct.pack("<Q", 2) + b"[]",
    "lying offsets": save({"a": np.zeros(3)}, metadata={"format": "ding_like segment 1"}).replace(b"[0,24]", b"[0,99]"),
}


def test_foreign_bytes_are_refused_even_with_the_right_hash(tmp_path: Path) -> None:
    codes = {}
    for kind, data in FOREIGN.items():
        (tmp_path / "w.1.safetensors").write_bytes(data)
        with pytest.raises(SegmentError) as caught:
            read_segment(tmp_path, "w.1", rows=3, sha256=hashlib.sha256(data).hexdigest(), nbytes=len(data))
        codes[kind] = caught.value.code

    assert {kind: code for kind, code in codes.items() if code != "foreign"} == {}


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Any, target: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ding_like.utils.files.os.replace", full)

    with pytest.raises(SegmentError, match="there is no room for") as caught:
        write(tmp_path)

    assert caught.value.code == "full" and list(tmp_path.iterdir()) == []


def test_what_is_told_beside_the_rows_comes_back_as_it_was(tmp_path: Path) -> None:
    told = {"0.ObsNorm/count": np.array(3.0), "0.ObsNorm/mean": np.array([0.1, 1e-300])}
    columns = {"a": np.arange(3)}
    written = write_segment(tmp_path, "w.1", columns, dataclasses.replace(META, observed=told))
    said = {"rows": 3, "sha256": written.sha256, "nbytes": written.nbytes}

    read, meta = read_segment(tmp_path, "w.1", **said, row_bytes=8, observed_bytes=24)

    assert list(read) == ["a"] and read["a"].tolist() == [0, 1, 2]
    assert meta.observed.keys() == told.keys()
    for name, value in told.items():
        assert meta.observed[name].dtype == value.dtype and meta.observed[name].shape == value.shape
        assert (meta.observed[name] == value).all()
    assert dataclasses.replace(meta, observed={}) == META


def test_more_bytes_than_are_read_are_not_even_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.data.segment_file.MAX_BYTES", 500)

    with pytest.raises(SegmentError, match=r"up to 500 are read\. Lower system\.segment_rows"):
        write_segment(tmp_path, "w.1", {"a": np.zeros(100)}, META)

    assert list(tmp_path.iterdir()) == []


DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"]


def make_columns(rows: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {f"z_{name}": rng.integers(0, 2, (rows, 2, 3)).astype(name) for name in DTYPES}


def test_columns_come_back_in_order_and_bit_by_bit(tmp_path: Path) -> None:
    columns = make_columns()
    columns["a"] = np.array([np.nan, -0.0, np.inf, 1e-45, 3], np.float32)

    save_columns(tmp_path / "rows", columns)
    found = load_columns(tmp_path / "rows")

    assert list(found) == list(columns)
    for name, column in columns.items():
        assert found[name].dtype == column.dtype and found[name].shape == column.shape
        assert found[name].tobytes() == column.tobytes()


def test_columns_without_rows_keep_their_shapes(tmp_path: Path) -> None:
    save_columns(tmp_path / "rows", make_columns(0))

    assert all(column.shape == (0, 2, 3) for column in load_columns(tmp_path / "rows").values())


def test_a_column_that_is_not_contiguous_is_saved_as_it_reads(tmp_path: Path) -> None:
    column = np.arange(12).reshape(3, 4).T

    save_columns(tmp_path / "rows", {"x": column})

    assert np.array_equal(load_columns(tmp_path / "rows")["x"], column)


def test_a_dtype_without_a_place_is_one_clear_error_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="name <U3"):
        save_columns(tmp_path / "rows", {"name": np.array(["abc"])})

    assert list(tmp_path.iterdir()) == []


def test_a_torn_file_is_one_clear_error(tmp_path: Path) -> None:
    save_columns(tmp_path / "rows", make_columns())
    data = (tmp_path / "rows").read_bytes()
    for cut in (0, 4, 40, -1):
        (tmp_path / "rows").write_bytes(data[:cut])
        with pytest.raises(CheckpointError, match="rows cannot be read as columns"):
            load_columns(tmp_path / "rows")


def test_a_file_of_another_program_is_one_clear_error(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "rows")

    with pytest.raises(CheckpointError, match="has the format None, expected 'ding_like columns 1'"):
        load_columns(tmp_path / "rows")


def test_column_files_are_told_from_other_states(tmp_path: Path) -> None:
    save_columns(tmp_path / "rows", make_columns())
    save_state(tmp_path / "state", {"data": []})

    assert is_column_file(tmp_path / "rows")
    assert not is_column_file(tmp_path / "state") and not is_column_file(tmp_path / "missing")


SAVER = """
import sys
import numpy as np
from ding_like.data.segment_file import save_columns
print("go", flush=True)
while True:
    save_columns(sys.argv[1], {"x": np.full((200_000, 4), 2.0, np.float32)})
"""


@pytest.mark.slow
def test_a_save_killed_half_way_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    rng = np.random.default_rng(0)
    for _ in range(5):
        save_columns(path, {"x": np.full((200_000, 4), 1.0, np.float32)})
        with subprocess.Popen([sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"go\n"
            try:
                process.wait(timeout=float(rng.uniform(0, 0.02)))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)

        found = load_columns(path)["x"]
        assert found.shape == (200_000, 4) and (found == found[0, 0]).all() and found[0, 0] in (1.0, 2.0)
