"""Keep the record of a run: how far it is, its evaluations, the best of them, and at last its result."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ding_like.pipeline.report.progress import Progress
from ding_like.pipeline.report.run_console import RunConsole
from ding_like.pipeline.report.text import measure
from ding_like.pipeline.roles.best_checkpoint import BEST_CHECKPOINT
from ding_like.pipeline.roles.origin import Origin
from ding_like.types import State
from ding_like.utils.files import atomic_write


@dataclass(frozen=True)
class RunResult:
    """Describe a finished run; it is what `result.json` holds."""

    stop: bool  # whether an evaluation reached stop_value
    eval_value: float  # mean return of a fresh evaluation of the last model
    eval_value_raw: list[float]
    env_step: int
    train_iter: int
    duration_s: float  # the whole loop
    eval_duration_s: float  # of which evaluations
    finish_time: str
    best_eval: float | None = None  # mean return of the best evaluation, the fresh one included
    eval_metrics: Mapping[str, float] = field(default_factory=dict)  # means of what the env itself measures


class RunRecord:
    """Keep the record of a run, in every pipeline; it begins with the run."""

    def __init__(
        self, exp_name: str, *, origin: Origin | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._exp_name = exp_name
        self._origin = origin
        self._clock = clock
        self._started_s = clock()
        self._earlier_s = 0.0  # what the run took before it was resumed
        self._eval_returns: Sequence[float] = ()  # of the last evaluation
        self._eval_metrics: Mapping[str, float] = {}  # of the last evaluation
        self._eval_duration_s = 0.0
        self.best_eval = math.nan  # mean return of the best evaluation; NaN before there is one

    @property
    def duration_s(self) -> float:
        """Return how long the run has taken, stretches before a resume included."""
        return self._earlier_s + self._clock() - self._started_s

    def note_evaluation(
        self,
        returns: Sequence[float],
        *,
        best: float,
        env_step: int,
        duration_s: float,
        console: RunConsole,
        metrics: Mapping[str, float] | None = None,  # of the env, means over episodes
    ) -> None:
        """Take note of an evaluation, after which the best mean return is `best`, and say so if it is a better one."""
        is_better = best > self.best_eval  # not of the first one: no number is above NaN
        self._eval_returns, self.best_eval, self._eval_metrics = list(returns), best, dict(metrics or {})
        self._eval_duration_s += duration_s
        if is_better:
            console.event(f"env step {env_step:,}  eval {measure(best)} is the best so far -> {BEST_CHECKPOINT}")

    def progress(
        self,
        *,
        env_step: int,
        train_iter: int,
        mean_return: float = math.nan,
        mean_length: float = math.nan,
        setting: Mapping[str, Any] | None = None,  # what the commander says, of any kind
        learn: Mapping[str, float] | None = None,
        workers: Mapping[str, str] | None = None,
    ) -> Progress:
        """Return how far the run is: what the pipeline says, and what is known here."""
        return Progress(
            env_step=env_step,
            train_iter=train_iter,
            duration_s=self.duration_s,
            eval_duration_s=self._eval_duration_s,
            mean_return=mean_return,
            mean_length=mean_length,
            eval_returns=self._eval_returns,
            best_eval=self.best_eval,
            eval_metrics=self._eval_metrics,
            setting=setting or {},
            learn=learn or {},
            workers=workers or {},
        )

    def conclude(
        self,
        returns: Sequence[float],
        *,
        stop: bool,
        env_step: int,
        train_iter: int,
        eval_metrics: Mapping[str, float] | None = None,
        more: Mapping[str, float] | None = None,
    ) -> RunResult:
        """Write `result.json`, with where the run comes from and what there is `more` to say, and return the result.

        `returns` and the env's own `eval_metrics` are those of the final evaluation, which `note_evaluation` has been
        told of. Raises OSError if the file cannot be written; another call writes it again.
        """
        result = RunResult(
            stop=stop,
            eval_value=sum(returns) / len(returns),
            eval_value_raw=list(returns),
            env_step=env_step,
            train_iter=train_iter,
            duration_s=self.duration_s,
            eval_duration_s=self._eval_duration_s,
            finish_time=time.strftime("%Y-%m-%d %H:%M:%S"),
            best_eval=self.best_eval if math.isfinite(self.best_eval) else None,
            eval_metrics=dict(eval_metrics or {}),
        )
        origin = {} if self._origin is None else self._origin.as_dict()
        with atomic_write(Path(self._exp_name) / "result.json") as file:
            file.write(json.dumps({**asdict(result), **(more or {}), **origin}, indent=2).encode())
        return result

    def state_dict(self) -> State:
        """Return what a resumed run goes on from."""
        return {
            "eval_returns": list(self._eval_returns),
            "eval_metrics": dict(self._eval_metrics),
            "eval_duration_s": self._eval_duration_s,
            "duration_s": self.duration_s,
            **({} if self._origin is None else {"command": self._origin.command, "commit": self._origin.commit}),
        }

    def load_state_dict(self, state: State, *, best: float) -> None:
        """Go on from what `state_dict` returned; `best` is the best mean return until then."""
        self._eval_returns, self._eval_duration_s = state["eval_returns"], state["eval_duration_s"]
        self._earlier_s = state["duration_s"]
        self._eval_metrics = state.get("eval_metrics", {})  # points of earlier versions have none
        self.best_eval = best if self._eval_returns else math.nan
        if self._origin is not None and "command" in state:  # what the run was begun with, not `ding --resume`
            self._origin = replace(self._origin, command=state["command"], commit=state["commit"])
