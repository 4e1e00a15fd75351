"""Plan of a study: what it varies (`--param KEY=RANGE`) and what its trials run, kept in `STUDY/study.json`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ding_like.config.read import parse_value
from ding_like.errors import ConfigError
from ding_like.utils.files import load_plan, save_plan

if TYPE_CHECKING:
    from optuna import Trial

PLAN_FILE = "study.json"
FORMAT = 1  # of that file
Kind = Literal["float", "log", "int", "logint", "choice"]

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"(?:(?P<kind>[a-z]+):)?(?P<low>{_NUMBER})\.\.(?P<high>{_NUMBER})(?::(?P<step>{_NUMBER}))?")
FORMS = "LOW..HIGH, log:LOW..HIGH, int:LOW..HIGH (with :STEP at its end), logint:LOW..HIGH, or [VALUE, VALUE...]"


@dataclass(frozen=True)
class Param:
    """Setting that a study varies: a range of numbers, or choices."""

    key: str  # of the config
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    choices: tuple[str, ...] = ()  # as they are typed on the command line

    def suggest(self, trial: Trial) -> None:
        """Draw a value for a trial, if it has none yet."""
        if self.kind == "choice":
            trial.suggest_categorical(self.key, self.choices)
        elif self.kind in ("int", "logint"):
            step = 1 if self.step is None else int(self.step)
            trial.suggest_int(self.key, int(self.low), int(self.high), log=self.kind == "logint", step=step)
        else:
            trial.suggest_float(self.key, self.low, self.high, log=self.kind == "log", step=self.step)

    def override(self, value: Any) -> str:
        """Return the argument of `ding` that sets a value which was drawn."""
        return f"{self.key}={value if self.kind == 'choice' else repr(value)}"

    def samples(self) -> list[str]:
        """Return overrides with the ends of the range, or with every choice: what the config must take."""
        values: Sequence[Any] = self.choices
        if self.kind != "choice":
            is_int = self.kind in ("int", "logint")
            values = [int(end) if is_int else end for end in (self.low, self.high)]
        return [self.override(value) for value in values]


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a study, as `study.json` holds it beside its format."""

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
        """Settings that are varied."""
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


def parse_params(texts: Sequence[str]) -> list[Param]:
    """Return the settings of `--param` arguments; raises ConfigError with everything that is wrong with them."""
    if not texts:
        raise ConfigError("a study needs something to vary, such as --param policy.learn.learning_rate=log:1e-5..1e-2")
    params, faults = [], []
    for text in texts:
        try:
            params.append(parse_param(text))
        except ConfigError as error:
            faults.append(str(error))
    keys = [param.key for param in params]
    faults += [
        f"--param {key} is given twice; give one range or one list."
        for key in dict.fromkeys(keys)
        if keys.count(key) > 1
    ]
    if faults:
        raise ConfigError("\n".join(faults))
    return params


def parse_param(text: str) -> Param:
    """Return the setting of one `--param` argument; raises ConfigError for one that cannot be read."""
    key, equals, given = (part.strip() for part in text.partition("="))
    if not equals or not key or not given:
        raise ConfigError(f"--param {text!r} is no KEY=RANGE; give {FORMS}, as in policy.nstep=int:1..5.")
    if given.startswith(("[", "(")):
        return Param(key, "choice", choices=_choices(key, given))
    found = _RANGE.fullmatch(given)
    if found is None:
        raise ConfigError(f"--param {key}: {given!r} is no range; give {FORMS}.")
    return _range(key, given, found)


def _choices(key: str, given: str) -> tuple[str, ...]:
    try:
        values = ast.literal_eval(given)
    except (ValueError, SyntaxError):
        values = [parse_value(each.strip()) for each in given[1:-1].split(",") if each.strip()]  # words without quotes
    choices = tuple(dict.fromkeys(each if isinstance(each, str) else repr(each) for each in values))
    if len(choices) < 2:
        raise ConfigError(f"--param {key}: {given} has fewer than two values to choose from.")
    return choices


def _range(key: str, given: str, found: re.Match[str]) -> Param:
    """Return a range that can be drawn from; raises ConfigError otherwise."""
    kind: Any = found["kind"]  # checked below
    numbers = found["low"], found["high"], found["step"] or "nan"
    if kind is None:
        if not any("." in each or "e" in each.lower() for each in numbers):  # whole numbers, or not?
            raise ConfigError(f"--param {key}: is {given} of whole numbers? Give int:{given}, or float:{given}.")
        kind = "float"
    low, high, step = map(float, numbers)
    is_log, is_int = kind in ("log", "logint"), kind in ("int", "logint")
    if kind not in get_args(Kind) or kind == "choice":
        fault = f"unknown kind of range '{kind}'; give {FORMS}."
    elif not (math.isfinite(low) and math.isfinite(high)) or low >= high:
        fault = f"{given} goes from {low:g} to {high:g}; give the smaller number first."
    elif is_log and low <= 0:
        fault = f"{given} is logarithmic and begins at {low:g}; begin above 0."
    elif is_int and not all(math.isnan(each) or each == int(each) for each in (low, high, step)):
        fault = f"{given} is of whole numbers; give whole ones, or float:LOW..HIGH."
    elif step <= 0 or (is_log and not math.isnan(step)):
        fault = f"{given} has the step {step:g}; steps are above 0, and of int and float."
    else:
        return Param(key, kind, low, high, None if math.isnan(step) else step)
    raise ConfigError(f"--param {key}: {fault}")
