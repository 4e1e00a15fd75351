"""`--learners` and torchrun: how many learners a run has, and which setting decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import serial_entry
from ding_like.entry.serial_entry import joined, number_of_learners
from ding_like.entry.training import Plan, RunArguments
from ding_like.errors import ConfigError
from tests.entry.typed import status_of
from tests.pipeline.learners.test_shares import compiled

CARTPOLE = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"


@pytest.fixture
def below_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in dict(RANK="1", WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="1").items():
        monkeypatch.setenv(name, value)


def test_a_run_has_one_learner_unless_more_are_asked_for() -> None:
    assert [number_of_learners(None), number_of_learners(4), number_of_learners(None, default=2)] == [1, 4, 2]


def test_torchrun_says_how_many_there_are(below_torchrun: None) -> None:
    assert number_of_learners(None) == number_of_learners(3) == 3 and not serial_entry.is_first()
    with pytest.raises(ConfigError, match="--learners is 2, but torchrun has started 3 processes"):
        number_of_learners(2)


def test_a_number_of_torchruns_that_is_none_is_named(below_torchrun: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match="the environment's WORLD_SIZE is 'two'"):
        number_of_learners(None)


def test_half_of_torchruns_variables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ConfigError, match="has WORLD_SIZE=2 but not RANK, MASTER_ADDR, MASTER_PORT.*or unset WORLD_SIZE"
    ):
        number_of_learners(None)


def test_torchruns_learners_are_of_one_seed(below_torchrun: None, capsys: Any) -> None:
    assert status_of("-m", "serial", "-c", str(CARTPOLE), "-s", "0", "-s", "1") == 1
    assert "2 seeds are given: give one -s" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_more_learners_than_cores_are_refused(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serial_entry, "num_cores", lambda: 2)

    assert status_of("-m", mode, "-c", str(CARTPOLE), "--learners", "8") == 1
    said = capsys.readouterr().err
    assert "--learners is 8, and this machine has 2 CPU cores" in said and "Give --learners from 1 to 2" in said
    assert list(tmp_path.iterdir()) == []


def test_a_parallel_run_is_told_how_many_share_its_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plans: list[Any] = []
    monkeypatch.setattr("ding_like.entry.parallel_entry.ParallelRun.run", lambda run: plans.append(run))

    assert status_of("-m", "parallel", "-c", str(CARTPOLE), "--learners", "2") == 0

    assert plans[0].system.num_learners == 2


def test_a_timeout_shorter_than_the_learners_beats_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learners.timeout_s\s+is 1, give at least 2"):
        with joined(Plan(compiled(learners=dict(timeout_s=1)), RunArguments("serial", 0, 10, 10, True, 2), None)):
            pass
