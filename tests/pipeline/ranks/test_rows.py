"""A segment of rows arrives as it was sent, and only numbers are sent."""

from __future__ import annotations

import numpy as np
import pytest

from ding_like.comm.channels import Segment, Version
from ding_like.comm.tensors import to_bytes
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError
from ding_like.pipeline.ranks import decode_segment, encode_segment


def segment() -> Segment:
    columns = {
        "obs": np.arange(12, dtype=np.float32).reshape(3, 4),
        "action": np.array([1, 0, 2]),
        "done": np.array([False, True, False]),
        "frame": np.arange(24, dtype=np.uint8).reshape(3, 2, 4),
    }
    columns["obs"].flags.writeable = False
    observed = {"0.ObsNorm/count": np.array(3.0), "0.ObsNorm/mean": np.arange(4.0)}
    return Segment(TransitionBatch(columns), Version(1, 7), 5, {"return": 9.5, "eps": 0.1}, observed)


def test_a_segment_arrives_as_it_was_sent() -> None:
    own = segment()

    found = decode_segment(encode_segment(own))

    assert (found.version, found.env_steps, found.stats) == (own.version, own.env_steps, own.stats)
    assert list(found.batch.columns) == list(own.batch.columns)
    for sent, came in ((own.batch.columns, found.batch.columns), (own.observed, found.observed)):
        for name, column in sent.items():
            assert came[name].dtype == column.dtype and np.array_equal(came[name], column), name


def test_what_is_no_column_of_numbers_is_refused() -> None:
    texts = TransitionBatch({"name": np.array(["a", "b"], dtype=object)})
    for batch in (texts, [{"obs": 1}]):
        with pytest.raises(CommError, match="ranks send rows as columns of numbers"):
            encode_segment(Segment(batch, Version(0, 0), 1))


def test_bytes_that_describe_no_rows_are_refused() -> None:
    for wrong in (encode_segment(segment())[:-1], to_bytes({}), to_bytes({}, {"segment": "{}"}), np.zeros(9, np.uint8)):
        with pytest.raises(CommError, match="header"):
            decode_segment(wrong)
