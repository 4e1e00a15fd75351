"""What `system_config['ranks']` may say; every fault is named at once."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.config import compile_config
from ding_like.errors import ConfigError
from ding_like.pipeline.settings import RankSettings, read_ranks
from tests.pipeline.ray import runs


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
