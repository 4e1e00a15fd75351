"""Columns come back from a file bit by bit, or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.data.segment_file import is_column_file, load_columns, save_columns
from ding_like.errors import CheckpointError
from ding_like.utils.checkpoint import save_state

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
