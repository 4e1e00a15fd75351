"""Experiment: the folder of one run, or of several seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ding_like.errors import ConfigError
from ding_like.report.runs import PLAN_FILE, NoReturnsError, Run, read_result, read_run, read_settings, with_metric
from ding_like.types import Config
from ding_like.utils.files import load_plan, save_plan

FORMAT = 1  # of that file


@dataclass(frozen=True)
class SeedsPlan:
    """Plan of an experiment of several seeds, as `experiment.json` holds it beside its format."""

    seeds: tuple[int, ...]
    mode: str
    command: str  # as it was typed
    config: str  # the file that the seeds run
    config_sha256: str  # of its text when the experiment began
    overrides: tuple[str, ...]  # KEY=VALUE, of the config
    arguments: tuple[str, ...]  # more of `ding` for each seed, beside the config, the seed and the folder
    max_env_step: int
    max_train_iter: int

    def save(self, folder: Path) -> None:
        """Write it into the experiment's folder."""
        save_plan(folder / PLAN_FILE, self, version=FORMAT)


def read_plan(folder: Path) -> SeedsPlan | None:
    """Return the plan of an experiment of several seeds, None for a folder of another kind.

    Raises ConfigError for a file that is damaged, or of another version.
    """
    still = f"each of its seeds can still be read: {folder}/seed0, for instance."
    return load_plan(folder / PLAN_FILE, SeedsPlan, version=FORMAT, still=still)


def seed_folder(folder: Path, seed: int) -> Path:
    """Return where the run of a seed is."""
    return folder / f"seed{seed}"


def seed_log(folder: Path, seed: int) -> Path:
    """Return where a seed's output goes."""
    return folder / "log" / f"seed{seed}.txt"


@dataclass(frozen=True)
class Member:
    """Seed of an experiment."""

    seed: int | None  # None: the run does not record it
    folder: Path
    run: Run | None  # None: it has written no returns yet

    @property
    def result(self) -> Config:
        """What `result.json` holds, empty if the seed has not ended."""
        return {} if self.run is None else self.run.result

    @property
    def state(self) -> str:
        """State of the seed in words."""
        if self.result:
            return "reached stop_value" if self.result["stop"] else "ended"
        return "not ended" if self.run is not None else "not begun"

    @property
    def score(self) -> float | None:
        """Mean return of the fresh evaluation of its last model, None if it has not ended."""
        return float(self.result["eval_value"]) if self.result else None


@dataclass(frozen=True)
class Experiment:
    """One run, or several seeds of one config."""

    folder: Path
    name: str
    members: tuple[Member, ...]
    plan: SeedsPlan | None = None  # of a folder of several seeds

    @property
    def runs(self) -> list[Run]:
        """Runs that have returns to show."""
        return [member.run for member in self.members if member.run is not None]

    @property
    def ended(self) -> list[Member]:
        """Seeds that have ended."""
        return [member for member in self.members if member.result]

    @property
    def scores(self) -> list[float]:
        """Fresh evaluations of the last models of the seeds that have ended."""
        return [float(member.result["eval_value"]) for member in self.ended]

    @property
    def first(self) -> Run:
        """Run from which what all have in common is taken: env, policy, stop value."""
        return self.runs[0]

    @property
    def env(self) -> str:
        return self.first.env

    @property
    def policy(self) -> str:
        return self.first.policy

    def with_metric(self, name: str) -> Experiment:
        """Return the experiment with another number of `metrics.jsonl` in place of the return of its runs."""
        members = (replace(each, run=each.run and with_metric(each.run, name)) for each in self.members)
        return replace(self, members=tuple(members))


def read_experiment(folder: str | Path) -> Experiment:
    """Return what a folder of one run or of several seeds holds, whether they have ended or not.

    Of siblings `X_seed0`, `X_seed1` ..., as several seeds were laid out before, `X` names all. Raises ConfigError if
    the folder is neither, or none of its runs has returns yet.
    """
    folder = Path(folder)
    plan = read_plan(folder)
    if plan is not None:
        members = tuple(_member(seed_folder(folder, seed), seed) for seed in plan.seeds)
        return _with_returns(Experiment(folder, folder.resolve().name, members, plan))
    if not folder.is_dir():
        siblings = _siblings(folder)
        if siblings:
            return _with_returns(Experiment(folder, folder.name, tuple(_member(path) for path in siblings)))
    run = read_run(folder)  # raises where there is none
    return Experiment(folder, run.name, (_member(folder),))


def read_experiments(folders: Sequence[str | Path]) -> list[Experiment]:
    """Return the experiments of folders; those that differ in `_seed<number>` only are one.

    Raises ConfigError as `read_experiment` does.
    """
    return joined([read_experiment(folder) for folder in dict.fromkeys(str(Path(folder)) for folder in folders)])


def joined(found: Sequence[Experiment]) -> list[Experiment]:
    """Return experiments, those of one run whose folders differ in `_seed<number>` only as one."""
    together: dict[tuple[Path, str], list[Experiment]] = {}
    for each in found:
        together.setdefault(_stem(each) or (each.folder.resolve(), ""), []).append(each)
    return [
        several[0]
        if len(several) == 1
        else Experiment(place / name, name, tuple(member for each in several for member in each.members))
        for (place, name), several in together.items()
    ]


def names_of(experiments: Sequence[Experiment]) -> list[str]:
    """Return short names that distinguish experiments: the folder's, with as many of its parents as that takes."""
    paths = [each.folder.resolve().parts for each in experiments]
    for depth in range(1, max(map(len, paths), default=0) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [str(each.folder) for each in experiments]


def _stem(experiment: Experiment) -> tuple[Path, str] | None:
    """Return the place and the name that siblings share, None for what is no sibling."""
    path = experiment.folder.resolve()
    found = re.fullmatch(r"(.+)_seed\d+", path.name)
    return (path.parent, found[1]) if found and experiment.plan is None and len(experiment.members) == 1 else None


def _siblings(folder: Path) -> list[Path]:
    """Return the runs `X_seed<number>` beside a missing folder X, by their numbers."""
    pattern = re.compile(re.escape(folder.name) + r"_seed(\d+)")
    found = [(pattern.fullmatch(path.parent.name), path.parent) for path in folder.parent.glob("*/metrics.jsonl")]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def _member(folder: Path, seed: int | None = None) -> Member:
    """Return a seed; one that has not begun, or has no returns yet, has no run."""
    run = None
    with suppress(ConfigError):
        run = read_run(folder)
    if seed is None:
        recorded = read_result(folder).get("seed", read_settings(folder).get("seed"))
        seed = recorded if isinstance(recorded, int) else None
    return Member(seed, folder, run)


def _with_returns(experiment: Experiment) -> Experiment:
    if not experiment.runs:
        raise NoReturnsError(
            f"no seed of '{experiment.folder}' has returns yet: no episode has ended. Their output is in "
            f"{experiment.folder}/log/."
        )
    return experiment
