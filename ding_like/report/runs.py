"""Files of a run in its folder, read."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.config import read_saved_config
from ding_like.errors import ConfigError
from ding_like.report.progress import Limits
from ding_like.types import Array, Config

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
    """Returns that the collector or the evaluator reported, as columns [N] in order of rising env steps."""

    env_step: Array
    mean: Array
    std: Array
    low: Array
    high: Array
    count: Array  # episodes of each report

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
    lines = _read_lines(metrics)
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
    lines = [line for line in _read_lines(run.folder / METRICS_FILE) if line["source"] in _SOURCES]
    training, evaluation = (_reports(lines, source, name) for source in _SOURCES)
    if not len(training) and not len(evaluation):
        known = sorted({key for line in lines for key in line} - {"source", "env_step", "train_iter", "time_s"})
        raise ConfigError(f"'{run.folder}' has no metric '{name}'; there are: {', '.join(known)}.")
    return replace(run, training=training, evaluation=evaluation)


def env_metrics(run: Run) -> list[str]:
    """Return the names of the numbers of the env itself among the metrics of evaluations, such as `is_success`."""
    lines = [line for line in _read_lines(run.folder / METRICS_FILE) if line["source"] == "evaluator"]
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


def _read_lines(path: Path) -> list[dict[str, Any]]:
    # A run that is going on may be writing its last line at this moment.
    complete = path.read_text(encoding="utf-8").rpartition("\n")[0]
    try:
        return [json.loads(line) for line in complete.splitlines()]
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} has a line that is no JSON: {error.doc[:60]!r}. Delete that line.") from error


def _reports(lines: list[dict[str, Any]], source: str, metric: str = "") -> Reports:
    """Return the returns that a source reported, or its values of another metric."""
    names = ("env_step", *([metric] if metric else _RETURNS), "episode_count")
    rows = [[float(line.get(name, 1)) for name in names] for line in lines if _holds(line, source, metric)]
    table = np.array(rows, np.float64).reshape(len(rows), len(names))
    # A part that was not given the env step reports -1.
    table = table[(table[:, 0] >= 0) & np.isfinite(table).all(axis=1)]
    table = table[_is_last_word(table[:, 0])]
    env_step, *values, count = table.T
    mean, std, low, high = [values[0], np.zeros_like(count), values[0], values[0]] if metric else values
    return Reports(env_step, mean, std, low, high, count)


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
