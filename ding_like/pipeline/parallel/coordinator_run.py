"""Watch a coordinator's run until it is over, and write down what becomes of it."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.comm.weight_files import read_weights, unflatten_state
from ding_like.errors import CommError, TrainingError
from ding_like.pipeline.parallel.coordinator import Coordinator
from ding_like.pipeline.report.progress import Progress
from ding_like.pipeline.report.run_console import RunConsole
from ding_like.pipeline.report.text import measure
from ding_like.pipeline.serial import RunResult
from ding_like.utils.checkpoint import save_state
from ding_like.utils.files import atomic_write
from ding_like.utils.metrics import MetricsSink

logger = logging.getLogger(__name__)

_LOOK_S = 0.25  # longest time between two looks at the run; whatever changes is seen at once
_METRICS_S = 1.0
_POLICY_ID = "policy"  # of the one policy that commanders train so far


class CoordinatorRun:
    """Watch a run until it is over: metrics, the console, the best checkpoint, the result."""

    def __init__(self, cfg: Any, coordinator: Coordinator) -> None:
        self._cfg = cfg
        self._system = coordinator.system
        self._core = coordinator.core
        self._commander = coordinator.commander
        self._service = coordinator.service
        self._metrics = MetricsSink(cfg.exp_name)
        self._started_s = time.monotonic()
        self._first_update_s: float | None = None
        self._metrics_s = 0.0
        self._eval_returns: list[float] = []
        self._eval_duration_s = 0.0

    def watch(self, console: RunConsole, *, check: Callable[[], None]) -> RunResult:
        """Return the result when the learner has judged its last model.

        `check` is called several times a second and raises what else ends the run. Raises TrainingError for a run that
        failed, with the cause.
        """
        console.start(self._progress())
        try:
            while not self._core.is_over:
                self._service.wait(_LOOK_S)
                check()
                self._take_note(console)
                if console.is_due:
                    console.update(self._progress())
            self._metrics_s = -math.inf  # the last words of the workers are written, however short the run was
            self._take_note(console)
            console.update(self._progress())
        finally:
            self._metrics.close()
        if self._core.failure is not None:
            raise TrainingError(self._core.failure)
        result = self._result()
        with atomic_write(Path(self._cfg.exp_name) / "result.json") as file:
            file.write(json.dumps(result, indent=2).encode())
        return RunResult(**{name: result[name] for name in RunResult.__dataclass_fields__})

    def _take_note(self, console: RunConsole) -> None:
        """Write down evaluations and, once a second, what workers said."""
        evaluations, self._commander.evaluations = self._commander.evaluations, []
        for evaluation in evaluations:
            self._note_evaluation(evaluation, console)
        now = time.monotonic()
        if self._first_update_s is None and self._core.learn_iter > 0:
            self._first_update_s = now
        if now - self._metrics_s < _METRICS_S:
            return
        self._metrics_s = now
        stats = self._stats()
        for role, values in stats.items():
            numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
            if numbers:
                self._metrics.write(role, numbers, env_step=self._core.env_step, train_iter=self._core.learn_iter)

    def _note_evaluation(self, evaluation: Mapping[str, Any], console: RunConsole) -> None:
        returns = np.array(evaluation["returns"])
        best_before = max((each for each in [self._best] if not math.isnan(each)), default=-math.inf)
        self._eval_returns = list(evaluation["returns"])
        self._eval_duration_s += evaluation["duration_s"]
        values = {
            "episode_count": len(returns),
            "avg_envstep_per_episode": float(np.mean(evaluation["lengths"])),
            "evaluate_time": evaluation["duration_s"],
            "reward_mean": float(returns.mean()),
            "reward_std": float(returns.std()),
            "reward_max": float(returns.max()),
            "reward_min": float(returns.min()),
        }
        self._metrics.write("evaluator", values, env_step=evaluation["env_step"], train_iter=int(evaluation["version"]))
        self._best = max(best_before, values["reward_mean"])
        if evaluation["is_best"] and evaluation["policy"] is not None:
            self._save_best(evaluation["policy"])
        if self._best > best_before > -math.inf:
            console.event(
                f"env step {evaluation['env_step']:,}  eval {measure(self._best)} is the best so far -> "
                "ckpt/ckpt_best.pth.tar"
            )

    _best = math.nan

    def _save_best(self, policy: Mapping[str, Any]) -> None:
        """Make a checkpoint of the weights with the best evaluation."""
        try:
            state = read_weights(
                self._system.path_policy, _POLICY_ID, policy["attempt"], policy["version"], sha256=policy["sha256"]
            )
        except CommError as error:  # no reason to end a run that goes well
            logger.warning("ckpt_best.pth.tar is not that of iteration %s: %s", policy["version"], error)
            return
        path = Path(self._cfg.exp_name) / "ckpt" / "ckpt_best.pth.tar"
        save_state(path, {"model": unflatten_state(state)["model"], "last_iter": policy["version"]})

    def _stats(self) -> dict[str, dict[str, Any]]:
        """Return what collectors (their mean) and the learner said last."""
        collectors = [each.stats for each in self._core.workers.values() if each.role == "collector" and each.stats]
        learners = [each.stats for each in self._core.workers.values() if each.role == "learner"]
        names = {name for stats in collectors for name in stats}
        means = {}
        for name in sorted(names):
            found = [stats[name] for stats in collectors if isinstance(stats.get(name), (int, float))]
            if found:
                means[name] = float(np.mean(found))
        renamed = {"return": "reward_mean", "length": "avg_envstep_per_episode"}
        return {
            "collector": {renamed.get(name, name): value for name, value in means.items()},
            "learner": learners[0] if learners else {},
        }

    def _progress(self) -> Progress:
        core, stats = self._core, self._stats()
        collector = stats["collector"]
        roles = [each.role for each in core.workers.values()]
        newest = core.policy_of(_POLICY_ID)
        acting = [each.policy_version for each in core.workers.values() if each.role == "collector" and each.env_steps]
        waiting = core.waiting_updates
        workers = {
            "collectors": str(roles.count("collector")),
            "learners": str(roles.count("learner")),
            "updates waiting": f"{waiting:,}",
        }
        if newest is not None and acting:
            workers["policy lag"] = f"{newest['version'] - min(acting):,} updates"
        if core.book.stale_rows:
            workers["rows too old"] = f"{core.book.stale_rows:,}"
        if core.book.bad_rows:
            workers["rows unreadable"] = f"{core.book.bad_rows:,}"
        return Progress(
            env_step=core.env_step,
            train_iter=core.learn_iter,
            duration_s=time.monotonic() - self._started_s,
            eval_duration_s=self._eval_duration_s,
            mean_return=collector.get("reward_mean", math.nan),
            mean_length=collector.get("avg_envstep_per_episode", math.nan),
            eval_returns=self._eval_returns,
            best_eval=self._best,
            setting={name: value for name, value in collector.items() if name == "eps"},
            learn=stats["learner"],
            workers=workers,
        )

    def _result(self) -> dict[str, Any]:
        learned = self._commander.learn_result
        assert learned is not None, "a run that is over without a failure has a learner's result"
        duration_s = time.monotonic() - self._started_s
        result = RunResult(
            stop=self._commander.stop,
            eval_value=learned["eval_value"],
            eval_value_raw=learned["eval_value_raw"],
            env_step=self._core.env_step,
            train_iter=int(learned["train_iter"]),
            duration_s=duration_s,
            eval_duration_s=self._eval_duration_s + learned["judge_s"],
            finish_time=time.strftime("%Y-%m-%d %H:%M:%S"),
        )
        started_s = (self._first_update_s or self._started_s) - self._started_s
        more = {"startup_s": started_s, "train_s": learned["train_s"], "last_iter": int(learned["last_iter"])}
        return {**asdict(result), **more}
