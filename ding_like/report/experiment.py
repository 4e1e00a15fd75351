"""Experiments as runs wrote them: the folder of one run or of several seeds, read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.config import read_saved_config
from ding_like.errors import ConfigError
from ding_like.report.run_console import Limits
from ding_like.types import Array, Config
from ding_like.utils.files import load_plan, save_plan

# Plan of several seeds in their folder; each has a folder of its own in it.
PLAN_FILE = "experiment.json"
METRICS_FILE = "metrics.jsonl"
_TAIL_BYTES = 8_000  # of a log that are searched for its last lines
_RETURNS = ("reward_mean", "reward_std", "reward_min", "reward_max")
# What evaluators report of every env, beside the numbers that the env measures itself.
_EVERY_ENV = frozenset(
    "source env_step train_iter time_s episode_count envstep_count avg_envstep_per_episode evaluate_time "
    "avg_envstep_per_sec avg_time_per_episode".split()
).union(_RETURNS)
_SOURCES = ("collector", "evaluator")


@dataclass(frozen=True)
class Reports:
    """Returns that the collector or the evaluator reported, as columns [N] in order of rising env steps.

    Of a run that collects nothing `env_step` are its updates, and `unit` is "updates".
    """

    env_step: Array
    mean: Array
    std: Array
    low: Array
    high: Array
    count: Array  # episodes of each report
    unit: str = "env steps"  # of `env_step`

    def __len__(self) -> int:
        return len(self.env_step)


@dataclass(frozen=True)
class Run:
    """Files of a run, read."""

    folder: Path
    training: Reports
    evaluation: Reports
    config: Config  # empty if the folder has none
    result: Config  # empty for a run that has not ended

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def newest(self) -> Reports:
        """Evaluations, or before there is one the returns of training."""
        return self.evaluation if len(self.evaluation) else self.training

    @property
    def env(self) -> str:
        """Name of the env, "" if the folder does not record it."""
        env = self.config.get("env", {})
        kind = str(env.get("type") or "")
        return str(self.result.get("env") or (kind if ":" in kind else env.get("env_id") or kind))

    @property
    def policy(self) -> str:
        """Registry name of the policy, "" if the folder does not record it."""
        return str(self.config.get("policy", {}).get("type", ""))

    @property
    def stop_value(self) -> float | None:
        """Evaluation that ends the run, None without one."""
        return Limits(stop_value=self.config.get("env", {}).get("stop_value")).stop


class NoReturnsError(ConfigError):
    """Error of a run that has no returns yet."""


def read_run(folder: Path) -> Run:
    """Return what a folder holds.

    Raises ConfigError if it is not the folder of a run, and of that kind NoReturnsError if it has no returns yet.
    """
    if not folder.is_dir():
        _refuse_file_or_glob(folder)
        raise ConfigError(f"there is no experiment folder '{folder}'.{_similar(folder, 'metrics.jsonl')}")
    metrics = folder / METRICS_FILE
    if not metrics.is_file() and (folder / "total_config.py").is_file():
        raise NoReturnsError(f"'{folder}' has no returns yet: its run has written nothing.")
    if not metrics.is_file():
        raise ConfigError(
            f"'{folder}' holds no metrics.jsonl: it is not an experiment folder, or its run wrote nothing."
            f"{_similar(folder, 'metrics.jsonl')} Give the exp_name of a run."
        )
    lines = read_lines(metrics)
    training, evaluation = (_reports(lines, source) for source in _SOURCES)
    if not len(training) and not len(evaluation):
        raise NoReturnsError(f"'{folder}' has no returns yet: no episode has ended in its run.")
    return Run(folder, training, evaluation, read_settings(folder), read_result(folder))


def check_experiment(folder: Path) -> None:
    """Raise ConfigError, with the experiments beside it, for a folder that holds no run."""
    if not (folder / "total_config.py").is_file():
        _refuse_file_or_glob(folder)
        raise ConfigError(
            f"'{folder}' is not an experiment folder: it has no total_config.py.{_similar(folder, 'total_config.py')} "
            "Give the exp_name of a run."
        )


def _refuse_file_or_glob(given: Path) -> None:
    """Raise ConfigError for a file of a run, and for a pattern that the shell found no folder for."""
    run = next((folder for folder in given.parents if (folder / METRICS_FILE).is_file()), None)
    if given.is_file() and run is not None:
        raise ConfigError(f"'{given}' is a file: give the folder of its run, {run}")
    if not given.exists() and set("*?[") & set(given.name):
        found = _similar(given, METRICS_FILE)
        raise ConfigError(f"no folder matches '{given}'.{found} Give the exp_name of a run.")


def refuse_seeds(folder: Path) -> None:
    """Raise ConfigError if a folder holds several seeds, where one run is asked for."""
    if not (folder / PLAN_FILE).is_file():
        return
    seeds = sorted(folder.glob("seed*/total_config.py"), key=lambda path: (len(path.parent.name), path.parent.name))
    named = ", ".join(str(path.parent) for path in seeds[:8]) or "none of which has begun"
    raise ConfigError(f"'{folder}' holds several seeds; give the folder of one: {named}.")


def with_metric(run: Run, name: str) -> Run:
    """Return a run whose reports are of another number than the return: `name`, of collector and evaluator.

    Raises ConfigError, with the numbers that there are, if neither reports it.
    """
    lines = [line for line in read_lines(run.folder / METRICS_FILE) if line["source"] in _SOURCES]
    training, evaluation = (_reports(lines, source, name) for source in _SOURCES)
    if not len(training) and not len(evaluation):
        known = sorted({key for line in lines for key in line} - {"source", "env_step", "train_iter", "time_s"})
        raise ConfigError(f"'{run.folder}' has no metric '{name}'; there are: {', '.join(known)}.")
    return replace(run, training=training, evaluation=evaluation)


def env_metrics(run: Run) -> list[str]:
    """Return the names of the numbers of the env itself among the metrics of evaluations, such as `is_success`."""
    lines = [line for line in read_lines(run.folder / METRICS_FILE) if line["source"] == "evaluator"]
    found = {name for line in lines for name, value in line.items() if isinstance(value, (int, float))}
    return sorted(found - _EVERY_ENV)


def read_settings(folder: Path) -> Config:
    """Return the main config that a run saved, empty if there is none."""
    path = folder / "total_config.py"
    return read_saved_config(path).main_config if path.is_file() else {}


def read_result(folder: Path) -> Config:
    """Return the content of `result.json`, empty if the run has not ended."""
    path = folder / "result.json"
    if not path.is_file():
        return {}
    try:
        result: Config = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is no JSON ({error}); delete it, the rest of the run can be read.") from error
    return result


def _similar(folder: Path, file: str) -> str:
    """Name the folders beside a missing one that hold `file`."""
    parent = folder.parent
    found = sorted(path.parent.name for path in parent.glob(f"*/{file}")) if parent.is_dir() else []
    return f" There are: {', '.join(found[:8])}." if found else ""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a `metrics.jsonl`. Raises ConfigError for one that is no JSON."""
    # A run that is going on may be writing its last line at this moment.
    complete = path.read_text(encoding="utf-8").rpartition("\n")[0]
    try:
        return [json.loads(line) for line in complete.splitlines()]
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} has a line that is no JSON: {error.doc[:60]!r}. Delete that line.") from error


def _reports(lines: list[dict[str, Any]], source: str, metric: str = "") -> Reports:
    """Return the returns that a source reported, or its values of another metric."""
    has_steps = any(line["env_step"] for line in lines)  # else the run collects nothing
    names = ("env_step" if has_steps else "train_iter", *([metric] if metric else _RETURNS), "episode_count")
    rows = [[float(line.get(name, 1)) for name in names] for line in lines if _holds(line, source, metric)]
    table = np.array(rows, np.float64).reshape(len(rows), len(names))
    # A part that was not given the env step reports -1.
    table = table[(table[:, 0] >= 0) & np.isfinite(table).all(axis=1)]
    table = table[_is_last_word(table[:, 0])]
    env_step, *values, count = table.T
    mean, std, low, high = [values[0], np.zeros_like(count), values[0], values[0]] if metric else values
    return Reports(env_step, mean, std, low, high, count, "env steps" if has_steps else "updates")


def _holds(line: Config, source: str, metric: str) -> bool:
    needed = {"env_step", metric} if metric else {"env_step", "episode_count", *_RETURNS}
    return line["source"] == source and needed <= line.keys()


def _is_last_word(env_step: Array) -> Array:
    """Return bool[N]: the reports that no later one goes back behind.

    Where a run was taken up again from an earlier point, what had been reported beyond that point is void.
    """
    if not len(env_step):
        return np.zeros(0, bool)
    later = np.minimum.accumulate(env_step[::-1])[::-1]
    return env_step < np.append(later[1:], np.inf)


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a file that are not empty, at most `count`; none where there is no file."""
    try:
        with open(log, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()][-count:]


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
