"""Pack what a collector sends into one compressed frame, and read it back: nothing in it can be executed.

A frame is an LZ4 frame (its format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md) over the bytes of
`column_bytes.py`. It says how long its content is and carries a checksum of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.comm.column_bytes import pack, unpack
from ding_like.data.batch import TransitionBatch
from ding_like.data.sequence_batch import SequenceBatch
from ding_like.errors import CommError, ConfigError, SchemaError
from ding_like.types import Array
from ding_like.utils.extras import pip_line

MAX_NBYTES = 2**32  # of a frame's content: one that claims more is refused before anything is allocated
_ROWS, _INITIAL, _PER_WINDOW, _OBSERVED = "rows", "initial", "per_window", "observed"


def pack_rows(
    batch: TransitionBatch | SequenceBatch,
    observed: Mapping[str, Array] | None = None,
    *,
    max_nbytes: int = MAX_NBYTES,
) -> bytes:
    """Return rows, or windows of them, and what the envs' wrappers observed (arrays by flat name) as one frame.

    Raises CommError for columns that hold no numbers and for more than `max_nbytes` bytes, and ConfigError where the
    package lz4 is missing.
    """
    parts: dict[str, Mapping[str, Any]] = {_ROWS: batch.columns, _OBSERVED: observed or {}}
    if isinstance(batch, SequenceBatch):
        parts |= {_INITIAL: batch.initial, _PER_WINDOW: batch.per_window}
    columns = {f"{part}/{name}": column for part, group in parts.items() for name, column in group.items()}
    # The format has an order of its own: names keep that of the columns.
    content = pack(columns, {"is_of_windows": isinstance(batch, SequenceBatch), "names": list(columns)})
    if len(content) > max_nbytes:
        raise CommError(
            f"{len(batch):,} rows have {len(content):,} bytes, more than {max_nbytes:,} in one frame: collect fewer "
            "at a time (collect.segment_rows), or send them without compression (compress=False)."
        )
    frame: bytes = _lz4().compress(content, content_checksum=True, store_size=True)
    return frame


def unpack_rows(
    frame: bytes, *, max_nbytes: int = MAX_NBYTES
) -> tuple[TransitionBatch | SequenceBatch, dict[str, Array]]:
    """Return (the rows, what was observed) of a frame that `pack_rows` made; arrays are in memory of their own.

    Raises CommError for bytes that are no frame, that were changed or cut off on their way, that have more than
    `max_nbytes` of content, or that hold something else.
    """
    columns, header = unpack(_content(frame, max_nbytes))
    names = header.get("names") if isinstance(header, Mapping) else None
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(columns):
        raise CommError(f"a frame of rows names other columns than it has: {sorted(columns)}.")
    parts: dict[str, dict[str, Array]] = {part: {} for part in (_ROWS, _INITIAL, _PER_WINDOW, _OBSERVED)}
    for key in names:
        column, (part, _, name) = columns[key], key.partition("/")
        if part not in parts or not name:
            raise CommError(f"a frame of rows has the column {key!r}; expected one of {', '.join(parts)} before a '/'.")
        parts[part][name] = column.copy() if not column.flags.writeable else column
    try:
        if header.get("is_of_windows") is True:
            return SequenceBatch(parts[_ROWS], parts[_INITIAL], parts[_PER_WINDOW]), parts[_OBSERVED]
        return TransitionBatch(parts[_ROWS]), parts[_OBSERVED]
    except (SchemaError, TypeError, IndexError) as error:  # the latter two: a column without a row, or a window
        raise CommError(f"a frame of rows does not fit together: {error}") from error


def _content(frame: bytes, max_nbytes: int) -> bytes:
    lz4 = _lz4()
    try:
        claimed = int(lz4.get_frame_info(frame)["content_size"])
        if not 0 < claimed <= max_nbytes:
            raise CommError(
                f"a frame of {len(frame):,} bytes says that it holds {claimed:,}; expected 1 to {max_nbytes:,}."
            )
        decompressor = lz4.LZ4FrameDecompressor()
        # One byte more than claimed: a frame that holds more is not unpacked any further.
        content: bytes = decompressor.decompress(frame, max_length=claimed + 1)
    except (RuntimeError, ValueError, TypeError, EOFError) as error:
        raise CommError(
            f"{len(frame):,} bytes are no frame of rows, or were changed on their way ({error}); send them again."
        ) from error
    if len(content) != claimed or not decompressor.eof or decompressor.unused_data:
        raise CommError(
            f"a frame of {len(frame):,} bytes was cut off, or more was put behind it: it has {len(content):,} of "
            f"{claimed:,} bytes. Send it again."
        )
    return content


def _lz4() -> Any:  # Any: a module without types, of an extra
    try:
        import lz4.frame
    except ImportError as error:
        raise ConfigError(
            f"rows are compressed by the package lz4, which is not installed: {pip_line('ray')}, or set compress=False."
        ) from error
    return lz4.frame
