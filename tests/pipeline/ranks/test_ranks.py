"""What travels between ranks, and what `system_config['ranks']` may say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Segment, Version
from ding_like.comm.tensors import to_bytes
from ding_like.config import compile_config
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.ranks import decode_segment, encode_segment
from ding_like.pipeline.settings import RankSettings, read_ranks
from tests.pipeline.ray import runs


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


def read(configs: Any, ranks: dict[str, Any], **more: Any) -> RankSettings:
    return read_ranks({"ranks": ranks}, compile_config(*configs, save=False), **more)


def test_a_config_without_the_section_has_the_defaults() -> None:
    cfg = compile_config(*runs.dqn(), save=False)

    assert read_ranks({}, cfg) == RankSettings()
    assert read_ranks({}, cfg, collect_ranks=5).collect_ranks == 5


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"colect_ranks": 2}, "collect_ranks"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"collect_ranks": 0}, "collect_ranks"),
        ({"dtype": "int8"}, "dtype"),
        ({"segment_rows": 8}, "changes nothing"),
        ({"updater": {"type": "nowhere:Updater"}}, "updater.type"),
        ({"collector": {"type": "other"}}, "collector.type"),
        ({"collect_ranks": 9}, "n_sample"),
    ],
    ids=lambda it: str(it),
)
def test_a_wrong_value_is_named(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(runs.dqn(), section)


def test_what_does_not_go_together_is_named_with_a_fix() -> None:
    with pytest.raises(ConfigError, match="learns only from rows of its newest weights: set it to True"):
        read(runs.ppo(), {"sync": False})
    with pytest.raises(ConfigError, match=r"system\.ray +is not of mode ranks"):
        read_ranks({"ray": {}}, compile_config(*runs.dqn(), save=False))
