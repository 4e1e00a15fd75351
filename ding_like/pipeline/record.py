"""Record of a run: origin, progress, evaluations, the best model, the result, and points to resume from."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from ding_like import __version__
from ding_like.config import FrozenConfig
from ding_like.errors import CheckpointError
from ding_like.pipeline.components import Components
from ding_like.pipeline.statistics import SharedStatistics
from ding_like.report.run_console import Progress, RunConsole
from ding_like.report.scores import measure
from ding_like.report.summary import env_name, function_name
from ding_like.types import Config, Factory, State
from ding_like.utils.checkpoint import ResumeStore, Saved
from ding_like.utils.files import atomic_write
from ding_like.utils.seeding import global_rng_state, set_global_rng_state

BEST_CHECKPOINT = "ckpt/ckpt_best.pth.tar"
# The best checkpoint before the closing evaluation; hidden, as only a resumed run reads it.
_EARLIER = "ckpt/.best_before_the_end.pth.tar"


def set_best_aside(exp_name: str | Path) -> None:
    """Keep the best checkpoint, if there is one, before that of the closing evaluation takes its place."""
    best, earlier = Path(exp_name, BEST_CHECKPOINT), Path(exp_name, _EARLIER)
    if not best.is_file():
        return
    earlier.unlink(missing_ok=True)
    try:
        os.link(best, earlier)
    except OSError:  # a file system without links
        os.replace(best, earlier)


def put_best_back(exp_name: str | Path) -> None:
    """Restore the best checkpoint from before a closing evaluation, which a resumed run has not played yet."""
    with suppress(FileNotFoundError):  # there is none, or another learner of the run was quicker
        os.replace(Path(exp_name, _EARLIER), Path(exp_name, BEST_CHECKPOINT))


def forget_earlier_best(exp_name: str | Path) -> None:
    """Delete what an earlier run left in the folder of a new one."""
    Path(exp_name, _EARLIER).unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """Return the versions of what a run computes with, by name."""
    return {
        "ding_like": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    }


_GIT_TIMEOUT_S = 2.0  # a repository that answers later is not asked again: its commit stays unknown


@dataclass(frozen=True)
class Origin:
    """Origin of a run, as in `result.json`."""

    seed: int
    env: str
    policy: str
    mode: str
    command: str | None  # None: typed into an interpreter or a notebook
    host: str
    commit: str | None  # of the repository that the config lies in; "-dirty" behind it: with changes
    versions: dict[str, str]


def origin_of(cfg: FrozenConfig, *, mode: str, source: str | Path = "", env_fn: Factory | None = None) -> Origin:
    """Return where a run of a compiled config comes from.

    `source` is the config's file, if it has one: without it the script that runs is looked at. `env_fn` is that of an
    `env_setting`, where the caller makes the envs.
    """
    given = Path(source) if str(source) and Path(source).is_file() else None
    file = given or (None if _is_ding() else _script())
    return Origin(
        seed=int(cfg.seed),
        env=env_name(cfg.env) if env_fn is None else function_name(env_fn),
        policy=str(cfg.policy.type),
        mode=mode,
        command=command_line(),
        host=platform.node(),
        commit=None if file is None else commit_of(file),
        versions=versions(),
    )


def command_line() -> str | None:
    """Return what was typed to start this process, None in an interpreter or a notebook."""
    if _script() is None:
        return None
    return shlex.join([*(["ding"] if _is_ding() else ["python", sys.argv[0]]), *sys.argv[1:]])


def _is_ding() -> bool:
    script = _script()
    return script is not None and (script.name == "ding" or script.parts[-2:] == ("ding_like", "__main__.py"))


def _script() -> Path | None:
    """Return the file that Python was started with, None in an interpreter or a notebook."""
    name = sys.argv[0] if sys.argv else ""
    path = Path(name)
    is_notebook = path.name == "ipykernel_launcher.py"
    return None if name in ("", "-c", "-m") or is_notebook or not path.is_file() else path


def commit_of(file: Path) -> str | None:
    """Return the commit of the git repository that a file belongs to, None if there is none or git does not say.

    A file that the repository ignores, an installed package for instance, does not belong to it.
    """
    folder = file.resolve().parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        if commit.returncode or not _git(folder, "check-ignore", "-q", file.name).returncode:
            return None
        is_dirty = bool(_git(folder, "diff", "--quiet", "HEAD").returncode)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() + ("-dirty" if is_dirty else "")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False
    )


@dataclass(frozen=True)
class RunResult:
    """Result of a finished run, as in `result.json`."""

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
    """Record of a run, in every pipeline; it begins with the run."""

    def __init__(
        self, exp_name: str, *, origin: Origin | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._exp_name, self._origin, self._clock = exp_name, origin, clock
        self._started_s, self._earlier_s = clock(), 0.0  # what the run took before it was resumed
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
        best: float,
        env_step: int,
        duration_s: float,
        console: RunConsole,
        metrics: Mapping[str, float],
        train_iter: int = 0,
    ) -> None:
        """Record an evaluation, after which the best mean return is `best`, and report a better one on the console.

        `metrics` are means of the env's own over the episodes.
        """
        is_better = best > self.best_eval  # not of the first one: no number is above NaN
        self._eval_returns, self.best_eval, self._eval_metrics = list(returns), best, dict(metrics)
        self._eval_duration_s += duration_s
        console.note_evaluation(returns, env_step=env_step, train_iter=train_iter)
        if is_better:
            place = f"env step {env_step:,}" if env_step or not train_iter else f"iter {train_iter:,}"
            console.event(f"{place}  eval {measure(best)} is the best so far -> {BEST_CHECKPOINT}")

    def progress(self, **more: Any) -> Progress:  # Any: fields of several types
        """Return how far the run is: `more` are the fields of Progress that the pipeline knows."""
        return Progress(
            duration_s=self.duration_s,
            eval_duration_s=self._eval_duration_s,
            eval_returns=self._eval_returns,
            best_eval=self.best_eval,
            eval_metrics=self._eval_metrics,
            **{name: value for name, value in more.items() if value is not None},
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
        origin = asdict(self._origin) if self._origin else {}
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


logger = logging.getLogger(__name__)


_KEPT_IN_STEP = 2  # points that each of several learners keeps at least: one may be killed before it has the newest


def resume_store(exp_name: str, *, keep: int = 2, rank: int = 0) -> ResumeStore:
    """Return the store of an experiment's resume points, of several learners that of `rank`."""
    return ResumeStore(Path(exp_name) / "ckpt" / (f"resume_rank{rank}" if rank else "resume"), keep=keep)


class Checkpointer:
    """Saver of a run's components, every so often by time and by env steps, and on request."""

    def __init__(
        self,
        cfg: FrozenConfig,
        parts: Components,
        *,
        arguments: Config,  # JSON-like: what the run was started with, for `ding --resume`
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cfg, self._parts, self._clock = cfg.resume, parts, clock
        keep = self._cfg.keep if parts.share.num_learners == 1 else max(self._cfg.keep, _KEPT_IN_STEP)
        self._store = resume_store(cfg.exp_name, keep=keep, rank=parts.share.rank)
        self._meta = {"arguments": dict(arguments), "versions": versions()}
        self._told_large = False
        self.start_from(0)

    def start_from(self, env_step: int) -> None:
        """Count the next interval from here."""
        self._last_step, self._last_s = env_step, self._clock()

    @property
    def _step(self) -> int:
        """Env steps collected so far, or updates of a run that collects nothing."""
        return self._parts.collector.envstep or self._parts.learner.train_iter

    def is_due(self) -> bool:
        """Tell whether a point is due, and count the next interval from here if it is.

        With a replay buffer over the limit none is until the run ends.
        """
        step, every = self._step, self._cfg.save_every_env_steps
        by_steps = every > 0 and step - self._last_step >= every
        if not by_steps and self._clock() - self._last_s < self._cfg.save_every_s:
            return False
        self.start_from(step)
        if self._parts.buffer is not None and self._parts.buffer.num_bytes > self._cfg.max_buffer_gb * 1e9:
            if not self._told_large:
                self._told_large = True
                logger.info(
                    "the replay buffer is over resume.max_buffer_gb=%g: it is saved when the run ends or is "
                    "interrupted, not in between; a killed process cannot be resumed.",
                    self._cfg.max_buffer_gb,
                )
            return False
        return True

    @property
    def _others(self) -> dict[str, Any]:
        """Parts by name whose state is saved with the run's own, None for those that it does not have."""
        return {name: getattr(self._parts, name) for name in ("learner", "evaluator", "metrics", "league")}

    def newest_step(self) -> int | None:
        """Return the env step of the newest valid point, None if there is none."""
        return next(iter(self._store.whole_steps()), None)

    def save(self, run_state: State) -> Path:
        """Save now and return the folder."""
        parts, collector = self._parts, self._parts.collector.state_dict()
        if isinstance(parts.statistics, SharedStatistics):
            collector = {**collector, "env": parts.statistics.replayable(collector["env"])}
        return self._store.save(
            self._step,
            {
                "policy": parts.policy.learn_mode.state_dict(),
                "buffer": {} if parts.buffer is None else parts.buffer.state_dict(),
                "collector": collector,
                "run": {
                    **run_state,
                    **{name: {} if part is None else part.state_dict() for name, part in self._others.items()},
                    **({} if parts.statistics is None else {"statistics": parts.statistics.resume_state()}),
                    "rng": global_rng_state(),
                },
            },
            self._meta,
        )

    def _carry_over(self, saved: Saved) -> None:
        """Have the collector go on from the env step that one of another kind has come to."""
        state, statistics = saved.parts["collector"], self._parts.statistics
        if saved.parts["run"].get("statistics") or (statistics is not None and statistics.resume_state()):
            raise CheckpointError(
                "env.wrappers that normalise by what they have seen are saved in one way where the run's own process "
                "collects, and in another where workers do: resume with workers if the run had any, with 0 if it had "
                "none."
            )
        logger.info("rows are collected elsewhere than before: open episodes begin anew, the env steps go on.")
        is_here = self._parts.collector_env is not None
        step = state["envstep"] if is_here else state["envstep_offset"] + state["loop"]["counters"][0]
        self._parts.collector.envstep = step

    def restore(self, saved: Saved) -> State:
        """Bring all parts to a saved point and return the run's own state."""
        parts, run = self._parts, saved.parts["run"]
        if parts.collector_env is None and parts.collects:
            logger.info("the collectors' open episodes begin anew: counts are exact, the resume is not.")
        elif parts.collector_env is not None and not parts.collector_env.lane_seeds:
            logger.info("this env manager cannot replay episodes: open ones are dropped, the resume is not exact.")
        try:
            parts.policy.learn_mode.load_state_dict(saved.parts["policy"])
            if parts.buffer is not None:
                parts.buffer.load_state_dict(saved.parts["buffer"])
            # Rows are collected here and were elsewhere, or the other way round.
            has_moved = ("loop" in saved.parts["collector"]) != (parts.collector_env is not None)
            if parts.buffer is not None and (has_moved or parts.collector_env is None):
                # The number of a lane may be another worker's now, which counts episodes as the first one did.
                parts.buffer.cut()
            if has_moved:
                self._carry_over(saved)
            else:
                parts.collector.load_state_dict(saved.parts["collector"])
            for name, part in self._others.items():
                if part is not None:
                    part.load_state_dict(run[name])
            if parts.statistics is not None and not has_moved:
                parts.statistics.load_resume_state(run["statistics"])
        except (KeyError, TypeError, IndexError) as error:
            raise CheckpointError(
                f"the saved point of step {saved.step} lacks or has more than this config's parts need ({error!r}): "
                "it was saved by another config or version. Resume with the one that saved it."
            ) from error
        # Last: building and resetting envs draws from these.
        set_global_rng_state(run["rng"])
        self.start_from(saved.step)
        for name, version in versions().items():
            before = saved.meta["versions"].get(name)
            if before != version:
                text = "saved with %s %s, going on with %s: the rest of the run may differ from an uninterrupted one."
                logger.warning(text, name, before, version)
        return run
