"""How seeds begin and go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ding_like.pipeline.process import StopSignal
from ding_like.report.experiment import SeedsPlan
from ding_like.study import seeds as seeds_run
from ding_like.study.child_runs import ChildRuns, text_hash
from ding_like.study.seeds import SeedRuns
from ding_like.utils.resume import ResumeStore


class Children(ChildRuns):
    """Child processes that are not started: it records what they would run."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.commands: dict[str, list[str]] = {}
        started.append(self)

    def start(self, name: str, arguments: Callable[[], Sequence[str]], *, log: Path) -> None:
        self.commands[name] = list(arguments())


started: list[Children] = []


def plan(folder: Path, *, arguments: tuple[str, ...]) -> SeedsPlan:
    config = folder / "config.py"
    config.write_text("")
    given: dict[str, Any] = {"max_env_step": 4000, "max_train_iter": 10**10}
    return SeedsPlan(
        seeds=(0, 1),
        mode="serial",
        command="",
        config=str(config),
        config_sha256=text_hash(config),
        overrides=("policy.nstep=1",),
        arguments=arguments,
        **given,
    )


def test_a_seed_goes_on_to_the_limits_of_the_experiment_and_another_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds_run, "ChildRuns", Children)
    arguments = ("--env-step", "4000", "--load-path", "x.pth.tar")
    # Its point is of before the limit was raised, and was saved by a resume that was interrupted.
    ResumeStore(tmp_path / "seed0/ckpt/resume").save(2000, {"run": {}}, {"arguments": {"max_env_step": 2000}})

    with StopSignal() as signals:
        SeedRuns(tmp_path, plan(tmp_path, arguments=arguments), jobs=1).run(signals)

    commands = started[-1].commands
    assert commands["0"] == ["--resume", str(tmp_path / "seed0"), "--env-step", "4000"]
    assert commands["1"][:2] == ["-m", "serial"] and commands["1"][-1] == "policy.nstep=1"
