"""Buffers that sample something else than rows are refused before anything runs; the others train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import parallel_pipeline, serial_pipeline
from ding_like.errors import ConfigError
from tests.pipeline.test_serial import make_configs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


def configs(buffer: str) -> tuple[dict[str, Any], dict[str, Any]]:
    main, create = make_configs()
    return main, {**create, "replay_buffer": {"type": buffer}}


@pytest.mark.parametrize(
    ("mode", "buffer", "unit"), [("serial", "sequence", "windows"), ("parallel", "episode", "episodes")]
)
def test_a_buffer_of_windows_or_episodes_is_refused_when_the_run_is_built(mode: str, buffer: str, unit: str) -> None:
    with pytest.raises(ConfigError, match=f"'{buffer}', which samples {unit}, but policy 'dqn' learns from rows"):
        if mode == "serial":
            serial_pipeline(configs(buffer), max_env_step=100)
        else:
            parallel_pipeline((*configs(buffer), {}), max_env_step=100)


@pytest.mark.parametrize("buffer", ["naive", "advanced"])
def test_a_buffer_of_rows_is_trained_from(buffer: str) -> None:
    serial_pipeline(configs(buffer), max_env_step=100)

    assert json.loads(Path("exp/result.json").read_text())["train_iter"] > 5
