"""A frame of rows gives back what was packed, bit for bit, and refuses everything else with a clear error."""

from __future__ import annotations

import sys

import lz4.frame
import numpy as np
import pytest

from ding_like.comm.column_bytes import pack
from ding_like.comm.workers.columns import pack_rows, unpack_rows
from ding_like.data.batch import TransitionBatch
from ding_like.data.sequence_batch import SequenceBatch
from ding_like.errors import CommError, ConfigError


def rows(number: int = 50) -> TransitionBatch:
    rng = np.random.default_rng(0)
    return TransitionBatch(
        {
            "obs/image": rng.integers(0, 255, (number, 3, 4, 4), np.uint8),
            "next_obs": rng.normal(size=(number, 5)).astype(np.float32),
            "action": rng.integers(0, 4, number),
            "reward": np.array([np.nan, np.inf, -0.0] + [0.5] * (number - 3), np.float32),
            "state/h": rng.normal(size=(number, 2, 3)),
            "terminated": rng.random(number) < 0.5,
        }
    )


OBSERVED = {"0.ObsNorm/count": np.array(12.0), "0.ObsNorm/mean": np.arange(3.0), "0.ObsNorm/m2": np.zeros(3)}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, column in expected.items():
        assert found[name].dtype == column.dtype and found[name].shape == column.shape, name
        assert found[name].tobytes() == column.tobytes(), name


def test_rows_and_statistics_come_back_bit_for_bit_in_order_and_may_be_written() -> None:
    batch, observed = unpack_rows(pack_rows(rows(), OBSERVED))

    assert isinstance(batch, TransitionBatch)
    assert_same(dict(batch.columns), dict(rows().columns))
    assert_same(observed, OBSERVED)
    assert all(column.flags.writeable for column in batch.columns.values())


def test_windows_of_rows_come_back_with_what_there_is_once_for_each() -> None:
    windows = SequenceBatch(
        {"obs": np.arange(24.0).reshape(2, 4, 3), "mask": np.ones((2, 4), bool)},
        initial={"state/h": np.ones((2, 7))},
        per_window={"weight": np.array([0.5, 1.0])},
    )

    batch, observed = unpack_rows(pack_rows(windows))

    assert isinstance(batch, SequenceBatch) and observed == {} and batch.num_steps == 4
    assert_same(dict(batch.columns), dict(windows.columns))
    assert_same(batch.initial, windows.initial)
    assert_same(batch.per_window, windows.per_window)


def test_columns_that_are_views_are_packed_as_what_they_show() -> None:
    wide = np.arange(40.0).reshape(10, 4)
    batch, _ = unpack_rows(pack_rows(TransitionBatch({"obs": wide[::2, 1:3], "t": wide.T[0, ::2]})))

    assert_same(dict(batch.columns), {"obs": wide[::2, 1:3].copy(), "t": wide[::2, 0].copy()})


def test_a_frame_of_repeated_rows_is_a_small_part_of_them() -> None:
    batch = TransitionBatch({"obs": np.zeros((1000, 84), np.float32)})

    assert len(pack_rows(batch)) < 84 * 4 * 1000 // 50


def test_bytes_that_are_cut_off_are_refused() -> None:
    frame = pack_rows(rows())

    for end in (0, 1, 7, 50, *(len(frame) - size - 1 for size in (0, 1, 7, 50))):
        with pytest.raises(CommError):
            unpack_rows(frame[:end])


def test_a_byte_that_was_changed_is_noticed_wherever_it_is() -> None:
    frame = pack_rows(rows(), OBSERVED)

    for place in range(0, len(frame), 97):
        changed = bytearray(frame)
        changed[place] ^= 0x40
        with pytest.raises(CommError):
            unpack_rows(bytes(changed))


def test_more_behind_a_frame_is_refused() -> None:
    with pytest.raises(CommError, match="more was put behind"):
        unpack_rows(pack_rows(rows()) + b"more")


def test_a_frame_that_says_it_holds_too_much_is_refused_before_it_is_unpacked() -> None:
    bomb = lz4.frame.compress(bytes(10_000_000), store_size=True)

    with pytest.raises(CommError, match=r"says that it holds 10,000,000; expected 1 to 1,000,000"):
        unpack_rows(bomb, max_nbytes=1_000_000)


def test_a_frame_that_does_not_say_what_it_holds_is_refused() -> None:
    with pytest.raises(CommError, match="says that it holds 0"):
        unpack_rows(lz4.frame.compress(bytes(1000), store_size=False))


def test_a_frame_that_holds_more_than_it_says_is_not_unpacked_to_its_end() -> None:
    true, small = (lz4.frame.compress(bytes(size), store_size=True) for size in (50_000_000, 1_000))
    # The header is the magic number, two flags, 8 bytes of size and a checksum of these.
    lying = small[:15] + true[15:]

    with pytest.raises(CommError, match=r"1,001 of 1,000 bytes|changed on their way"):
        unpack_rows(lying)


def test_a_frame_of_something_else_is_refused() -> None:
    for columns, header, said in (
        ({"rows/obs": np.zeros(3)}, {}, "names other columns"),
        ({"rows/obs": np.zeros(3)}, {"names": ["rows/obs", "rows/obs"]}, "names other columns"),
        ({"rows/obs": np.zeros(3)}, {"names": 7}, "names other columns"),
        ({"else/obs": np.zeros(3)}, {"names": ["else/obs"]}, "expected one of rows, initial"),
        ({"rows": np.zeros(3)}, {"names": ["rows"]}, "expected one of rows, initial"),
        (
            {"rows/a": np.zeros(3), "rows/b": np.zeros(4)},
            {"names": ["rows/a", "rows/b"]},
            "does not fit together.*equally long",
        ),
        ({"rows/a": np.zeros(())}, {"names": ["rows/a"]}, "does not fit together"),
        ({"rows/a": np.zeros(3)}, {"names": ["rows/a"], "is_of_windows": True}, "does not fit together"),
    ):
        frame = lz4.frame.compress(pack(columns, header), store_size=True)
        with pytest.raises(CommError, match=said):
            unpack_rows(frame)


def test_bytes_in_a_frame_that_are_no_columns_are_refused() -> None:
    with pytest.raises(CommError, match="hold no columns"):
        unpack_rows(lz4.frame.compress(b"no columns", store_size=True))


def test_what_are_no_numbers_is_not_packed() -> None:
    with pytest.raises(CommError, match="numbers only"):
        pack_rows(TransitionBatch({"obs": np.array([object()])}))


def test_more_than_fits_into_a_frame_is_refused_with_what_to_do() -> None:
    with pytest.raises(CommError, match="collect fewer at a time"):
        pack_rows(rows(), max_nbytes=1000)


def test_without_lz4_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)

    with pytest.raises(ConfigError, match=r'pip install "ding-like\[ray\]"'):
        pack_rows(rows())
