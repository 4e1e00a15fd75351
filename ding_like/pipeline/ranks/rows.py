"""Encode a segment of rows as a header, plain JSON, and one vector of numbers a dtype: nothing in it is executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding_like.comm.channels import Segment, Version
from ding_like.comm.weights.encode import Layout
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError
from ding_like.types import Array

_ROWS, _OBSERVED = "rows/", "observed/"


def encode_segment(segment: Segment) -> tuple[dict[str, Any], torch.Tensor]:  # Any: of JSON
    """Return (header, bytes uint8 [N]) of a segment. Raises CommError for rows that are no columns of numbers."""
    batch = segment.batch
    if not isinstance(batch, TransitionBatch) or any(each.dtype.kind not in "biuf" for each in batch.columns.values()):
        raise CommError(
            f"ranks send rows as columns of numbers, and the policy makes {type(batch).__name__}s of others: give its "
            "rows numbers of equal shapes, or run it with `ding -m serial`."
        )
    columns = {f"{_ROWS}{name}": each for name, each in batch.columns.items()}
    columns |= {f"{_OBSERVED}{name}": np.asarray(each) for name, each in segment.observed.items()}
    # `order="C"` keeps a lone number as it is, and `copy` makes what is read-only writable, as torch asks for.
    state = {name: torch.from_numpy(_writable(each)) for name, each in columns.items()}
    layout = Layout.of(state)
    header = {
        "names": list(columns),  # a layout has an order of its own
        "layout": layout.describe(),
        "version": list(segment.version),
        "env_steps": segment.env_steps,
        "stats": dict(segment.stats),
    }
    return header, torch.from_numpy(layout.pack(state))


def decode_segment(header: Mapping[str, Any], body: Array) -> Segment:  # Any: of JSON
    """Return the segment; its columns are views of `body` (uint8 [N]). Raises CommError for anything else."""
    state = Layout.parse(header.get("layout")).read(body)  # type: ignore[arg-type]  # parse checks
    try:
        columns = {name: state[name].numpy() for name in header["names"]}
        batch = TransitionBatch({_after(name, _ROWS): each for name, each in columns.items() if name.startswith(_ROWS)})
        observed = {_after(name, _OBSERVED): each for name, each in columns.items() if name.startswith(_OBSERVED)}
        version = Version(*(int(each) for each in header["version"]))
        return Segment(batch, version, int(header["env_steps"]), dict(header["stats"]), observed)
    except (LookupError, TypeError, ValueError) as error:
        raise CommError(f"a header of rows does not describe them ({type(error).__name__}: {error}).") from error


def num_bytes(header: Mapping[str, Any]) -> int:  # Any: of JSON
    """Return the bytes of the rows that a header describes."""
    return Layout.parse(header.get("layout")).nbytes  # type: ignore[arg-type]  # parse checks


def _after(name: str, prefix: str) -> str:
    return name.removeprefix(prefix)


def _writable(array: Array) -> Array:
    return np.asarray(array, order="C") if array.flags.writeable else np.array(array, order="C")
