"""Hold what a study runs: `STUDY/study.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ding_like.study.space import Param, parse_params
from ding_like.utils.plan_file import load_plan, save_plan

PLAN_FILE = "study.json"
FORMAT = 1  # of that file


@dataclass(frozen=True)
class StudyPlan:
    """Hold what a study runs, beside the format what `study.json` holds."""

    config: str  # the file that all trials run
    config_sha256: str  # of its text when the study began
    mode: str
    params: tuple[str, ...]  # as they were given
    overrides: tuple[str, ...]  # KEY=VALUE, of all trials
    trials: int
    seeds: int  # of each trial: 0, 1...
    first_seed: int
    limits: tuple[str, ...]  # --env-step N, --train-iter N
    budget: int  # env steps, or updates
    budget_unit: str  # "env_step" or "train_iter"
    prune: bool
    sampler_seed: int
    command: str  # as it was typed

    @property
    def space(self) -> list[Param]:
        """Return what is varied."""
        return parse_params(self.params)

    def save(self, folder: Path) -> None:
        """Write it into the study's folder."""
        save_plan(folder / PLAN_FILE, self, version=FORMAT)


def read_study_plan(folder: Path) -> StudyPlan | None:
    """Return what a study runs, None for a folder of another kind.

    Raises ConfigError for a file that is damaged, or of another version.
    """
    still = "its trials are runs that can still be read."
    return load_plan(folder / PLAN_FILE, StudyPlan, version=FORMAT, still=still)


def trial_folder(folder: Path, number: int) -> Path:
    """Return where the run of a trial is."""
    return folder / f"trial{number}"


def trial_log(folder: Path, number: int) -> Path:
    """Return where a trial's output goes."""
    return folder / "log" / f"trial{number}.txt"
