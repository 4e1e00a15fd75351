"""Watch a coordinator's run, and its workers on this machine, until it is over; write its result."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ding_like.comm.rest.client import read_weights
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.rest.worker import host_name
from ding_like.comm.tensors import unflatten_state
from ding_like.config import FrozenConfig
from ding_like.data.records import PREFIX
from ding_like.errors import CommError, TrainingError
from ding_like.pipeline.parallel.coordinator import Coordinator
from ding_like.pipeline.parallel.core.ledger import BUFFER_ID
from ding_like.pipeline.record import BEST_CHECKPOINT, Origin, RunRecord, RunResult
from ding_like.pipeline.statistics import ENV_WRAPPERS, checkpoint_entry
from ding_like.report.details import BufferUse, Details, Failure, ProcessReport, time_of_day
from ding_like.report.run_console import Progress, RunConsole
from ding_like.report.scores import measure
from ding_like.types import Json
from ding_like.utils import fork_server
from ding_like.utils.checkpoint import save_state
from ding_like.utils.files import is_full, when_there_is_room
from ding_like.utils.fork_server import ForkedChild, ForkServer
from ding_like.utils.measure import Interval
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.processes import describe_status, end_processes, forget_child, last_line, one_thread, start_child
from ding_like.worker.collector.base import reward_stats

logger = logging.getLogger(__name__)

_LOOK_S = 0.25  # longest time between two looks at the run; whatever changes is seen at once
_METRICS_S = 1.0
_WORD_S = 60.0  # between two words about a full disk
_POLICY_ID = "policy"  # of the one policy that commanders train so far


class CoordinatorRun:
    """Observer of a run until it is over: metrics, the console, the best checkpoint, the result."""

    def __init__(self, cfg: FrozenConfig, coordinator: Coordinator, *, origin: Origin | None = None) -> None:
        self._cfg, self._coordinator = cfg, coordinator
        self._metrics = MetricsSink(cfg.exp_name)
        self._record = RunRecord(cfg.exp_name, origin=origin, clock=time.monotonic)
        if math.isfinite(coordinator.commander.best_return):  # of the run before it was interrupted
            self._record.best_eval = float(coordinator.commander.best_return)
        self._startup_s: float | None = None  # until the first update
        self._stored_rows = 0  # in the buffer, when last looked at
        self._metrics_s = 0.0
        self._unsaved_best: Mapping[str, Json] | None = None  # weights that found no room on the disk yet
        self._words = Interval(_WORD_S, starts_due=True)

    def watch(self, console: RunConsole, *, check: Callable[[], None], children: Children | None = None) -> RunResult:
        """Return the result when the learner has evaluated its last model.

        `check` is called several times a second and raises what else ends the run. `children` are the workers of this
        machine. Raises TrainingError for a run that failed, with the cause.
        """
        console.details = partial(self._details, children)
        view = self._look({})
        console.start(self._progress(view))
        try:
            while not view["is_over"]:
                self._coordinator.service.wait(_LOOK_S)
                check()
                view = self._look(view)
                self._take_note(view, console)
                if console.is_due:
                    console.show(self._progress(view))
            console.is_ending = True
            self._metrics_s = -math.inf  # the last words of the workers are written, however short the run was
            self._take_note(view, console)
            if view["failure"] is None:
                self._note_last(view, console)
                end = {"stop": self._coordinator.commander.stop, "env_step": view["env_step"]}
                console.outcome = console.limits.describe_end(train_iter=view["learn_iter"], **end)
            console.update(self._progress(view))
        finally:
            self._metrics.close()
        if view["failure"] is not None:
            raise TrainingError(view["failure"])
        return when_there_is_room(lambda: self._conclude(view), report=logger.warning)

    def _look(self, before: dict[str, Json]) -> dict[str, Json]:
        """Return the run's status, and take its new evaluations; while it cannot be read, return the status `before`.

        Raises TrainingError if the run halted: it is not over, and another start of the coordinator continues it.
        """
        core = self._coordinator.core
        if core.halted is not None:
            raise TrainingError(core.halted)
        try:
            with self._coordinator.service.locked():
                evaluations, refuted = core.take_evaluations()
                status = core.status()
                self._stored_rows = status["buffers"][BUFFER_ID]["rows"]
                return {**status, "evaluations": evaluations, "refuted": refuted}
        except RefusedError:  # the state file cannot be written now: the log reports it
            if not before:
                raise
            return before

    def _take_note(self, view: dict[str, Json], console: RunConsole) -> None:
        """Write down evaluations and, once a second, what workers reported."""
        for each in view.pop("evaluations", ()):
            self._note_evaluation(each, console)
        for each in view.pop("refuted", ()):
            self._note_refuted(each, console)
        if self._unsaved_best is not None:
            self._save_best(self._unsaved_best)
        now = time.monotonic()
        if self._startup_s is None and view["learn_iter"] > 0:
            self._startup_s = self._record.duration_s
        if now - self._metrics_s < _METRICS_S:
            return
        self._metrics_s = now
        stats = _stats(view)
        for role, values in stats.items():
            numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
            if numbers:
                self._metrics.write(role, numbers, env_step=view["env_step"], train_iter=view["learn_iter"])

    def _note_evaluation(self, evaluation: Mapping[str, Json], console: RunConsole) -> None:
        returns, lengths = evaluation["returns"], evaluation["lengths"]
        values = {
            "episode_count": len(returns),
            **({"avg_envstep_per_episode": float(np.mean(lengths))} if len(lengths) else {}),
            "evaluate_time": evaluation["duration_s"],
            **reward_stats(returns),
            **evaluation.get("metrics", {}),
        }
        self._metrics.write("evaluator", values, env_step=evaluation["env_step"], train_iter=int(evaluation["version"]))
        if evaluation["is_best"] and evaluation["policy"] is not None:
            self._save_best({**evaluation["policy"], "env_step": evaluation["env_step"]})
        best = float(np.fmax(self._record.best_eval, values["reward_mean"]))  # of NaN and a number the number
        known = {
            "metrics": evaluation.get("metrics", {}),
            **{name: evaluation[name] for name in ("env_step", "duration_s")},
        }
        self._record.note_evaluation(
            returns, best=best, console=console, train_iter=int(evaluation["version"]), **known
        )  # fmt: skip

    def _note_last(self, view: dict[str, Json], console: RunConsole) -> None:
        """Write down the learner's evaluation of its last model, as those before it; it may be the best."""
        learned, newest = self._learned(), view["policies"].get(_POLICY_ID)
        is_newest = newest is not None and newest["version"] == learned["last_iter"]
        best = self._record.best_eval
        last = {"returns": learned["eval_value_raw"], "lengths": learned.get("eval_lengths", ())}
        last.update(duration_s=learned["judge_s"], metrics=learned.get("eval_metrics", {}))
        last.update(env_step=view["env_step"], version=learned["last_iter"])
        # Older weights are judged where an evaluation of theirs ended the run: that made the checkpoint.
        last.update(is_best=math.isnan(best) or learned["eval_value"] >= best, policy=newest if is_newest else None)
        self._note_evaluation(last, console)

    def _note_refuted(self, refuted: Mapping[str, Json], console: RunConsole) -> None:
        """Report that the run continues, and return to the best weights but for those."""
        self._record.best_eval = refuted["best"]
        if refuted["policy"] is not None:
            self._save_best(refuted["policy"])
        console.event(
            f"the learner's final evaluation gives {measure(refuted['judged'])} to the weights whose evaluation gave "
            f"{measure(refuted['said'])}: the run goes on"
        )

    def _save_best(self, policy: Mapping[str, Json], *, gives_up: bool = False) -> None:
        """Make a checkpoint of the weights with the best evaluation; on a full disk it is tried again.

        With `gives_up` the error of a full disk is raised: no later call tries again.
        """
        self._unsaved_best, folder = None, self._coordinator.system.path_policy
        attempt, version = policy["attempt"], policy["version"]
        try:
            state = read_weights(folder, _POLICY_ID, attempt, version, sha256=policy["sha256"])
        except CommError as error:  # no reason to end a run that goes well
            logger.warning("ckpt_best.pth.tar is not that of iteration %s: %s", version, error)
            return
        path = Path(self._cfg.exp_name) / BEST_CHECKPOINT
        acting = unflatten_state(state)
        saved = {"model": acting["model"], "last_iter": version}
        if "env_step" in policy:  # when it was evaluated
            saved["last_step"] = policy["env_step"]
        if ENV_WRAPPERS in acting:
            saved[ENV_WRAPPERS] = checkpoint_entry(acting[ENV_WRAPPERS])
        try:
            save_state(path, saved)
        except OSError as error:
            if not is_full(error):
                raise
            self._unsaved_best = policy
            if gives_up:
                raise
            if self._words.pass_s():
                logger.warning("%s waits for room on the disk: %s", path, error)

    def _progress(self, view: dict[str, Json]) -> Progress:
        stats = _stats(view)
        collector = stats["collector"]
        newest = view["policies"].get(_POLICY_ID)
        collectors = [each for each in view["workers"].values() if each["role"] == "collector"]
        acting = [each["policy_version"] for each in collectors if each["env_steps"]]
        workers = {
            "collectors": str(len(collectors)),
            "learners": str(len(view["workers"]) - len(collectors)),
            "updates waiting": f"{view['waiting_updates']:,}",
        }
        if newest is not None and acting:
            workers["policy lag"] = f"{newest['version'] - min(acting):,} updates"
        lost = {"rows too old": view["stale_rows"], "rows unreadable": view["bad_rows"]}
        workers.update({name: f"{rows:,}" for name, rows in lost.items() if rows})
        return self._record.progress(
            env_step=view["env_step"],
            train_iter=view["learn_iter"],
            mean_return=collector.get("reward_mean", math.nan),
            mean_length=collector.get("avg_envstep_per_episode", math.nan),
            setting={name: value for name, value in collector.items() if name == "eps"},
            learn=stats["learner"],
            workers=workers,
        )

    def _details(self, children: Children | None) -> Details:
        """Return the workers, those of this machine by their names; any thread may call it."""
        core = self._coordinator.core  # without its lock, which a full disk may hold
        found = {each.name: each for each in ([] if children is None else children.processes())}
        names = {each.pid: each.name for each in found.values()}
        here, newest = host_name(), core.policies.get(_POLICY_ID)
        for each in list(core.workers.values()):
            name = names.get(each.pid, "") if each.host == here else ""
            is_acting = each.role == "collector" and each.env_steps and newest is not None
            found[name or each.worker_id] = ProcessReport(
                name or each.worker_id, each.pid, each.host,
                heartbeat_s=core.silence_s(each),
                env_steps=each.env_steps if each.role == "collector" else None,
                rows=each.rows if each.role == "collector" else None,
                policy_lag=newest.version - each.policy_version if is_acting and newest is not None else None,
                note=each.state,
            )  # fmt: skip
        lost = {"too old": core.book.stale_rows, "unreadable": core.book.bad_rows}
        return Details(
            processes=list(found.values()),
            failures=[Failure(name, time_of_day(at_s), why) for name, at_s, why in list(core.losses)],
            lost_rows={reason: rows for reason, rows in lost.items() if rows},
            buffer=None if core.cfg.is_on_policy else BufferUse(self._stored_rows, core.cfg.buffer_size),
        )

    def _learned(self) -> dict[str, Json]:
        result: dict[str, Json] | None = self._coordinator.commander.learn_result
        assert result is not None, "a run that is over without a failure has a learner's result"
        return result

    def _conclude(self, view: dict[str, Json]) -> RunResult:
        if self._unsaved_best is not None:
            self._save_best(self._unsaved_best, gives_up=True)
        learned = self._learned()
        return self._record.conclude(
            learned["eval_value_raw"],
            stop=self._coordinator.commander.stop,
            env_step=view["env_step"],
            train_iter=int(learned["train_iter"]),
            eval_metrics=learned.get("eval_metrics"),
            more=dict(
                startup_s=self._startup_s or 0.0, train_s=learned["train_s"], last_iter=int(learned["last_iter"])
            ),
        )


def _stats(view: dict[str, Json]) -> dict[str, dict[str, Json]]:
    """Return what collectors (their mean) and the learner reported last."""
    workers = view["workers"].values()
    collectors = [each["stats"] for each in workers if each["role"] == "collector" and each["stats"]]
    learners = [each["stats"] for each in workers if each["role"] == "learner"]
    found: dict[str, list[float]] = {}
    for name, value in (item for stats in collectors for item in stats.items()):
        if isinstance(value, (int, float)):
            found.setdefault(name, []).append(value)
    renamed = {"return": "reward_mean", "length": "avg_envstep_per_episode"}
    means = {renamed.get(name, name): float(np.mean(values)) for name, values in sorted(found.items())}
    return {
        "collector": {name.removeprefix(PREFIX): value for name, value in means.items()},
        "learner": learners[0] if learners else {},
    }


# Take the tasks of a dead process back, given (pid, why); return whether it had done anything.
Lost = Callable[[int, str], bool]


@dataclass
class _Child:
    process: subprocess.Popen[bytes] | ForkedChild
    arguments: Sequence[str]
    fruitless: int = 0  # deaths in a row before anything was done


class Children:
    """Supervisor of the worker processes of this machine; use it with `with`, so that none is left behind.

    They are forked by a process that has imported what all of them need, where the system can do that (`ForkServer`).
    One that dies is started again, until it has died `max_restarts` + 1 times in a row without having done anything.
    `lost` is called for each. All have ended within `grace_s` of the block's end; they end, too, when this process is
    killed.
    """

    def __init__(self, log_folder: Path, *, lost: Lost, max_restarts: int = 3, grace_s: float = 20.0) -> None:
        self._folder = log_folder
        self._lost = lost
        self._max_restarts = max_restarts
        self._grace_s = grace_s
        self._children: dict[str, _Child] = {}
        self._folder.mkdir(parents=True, exist_ok=True)
        self._server = ForkServer.take(*fork_server.WORKERS) if fork_server.IS_POSSIBLE else None

    def processes(self) -> list[ProcessReport]:
        """Return the processes, "starting" until more is known of them; any thread may call it."""
        processes = [(name, child.process) for name, child in list(self._children.items())]
        return [
            ProcessReport(name, process.pid, state="ended" if process.returncode == 0 else "starting")
            for name, process in processes
        ]

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Start `ding` with arguments; its output goes to `{name}.txt`."""
        self._children[name] = _Child(self._launch(name, arguments), arguments)

    def _launch(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes] | ForkedChild:
        output = self._folder / f"{name}.txt"
        if self._server is None:
            command = [sys.executable, "-m", "ding_like.entry.cli", *arguments]
            with open(output, "ab") as file:
                return start_child(command, stdout=file, stderr=subprocess.STDOUT, env=one_thread())
        if not self._server.is_alive:
            self._server.close()
            self._server = ForkServer(*fork_server.WORKERS)
        return self._server.start(name, arguments, output=output)

    def check(self) -> list[str]:
        """Restart what has died; return a line for each.

        Raises TrainingError, with its last line of output, for one that keeps dying, or that ended with an error before
        it had done anything: it would again.
        """
        said = []
        for name, child in self._children.items():
            status = child.process.poll()
            if not status:  # it lives, or has left in peace
                continue
            how = f"{name} {describe_status(status)}"
            has_worked = self._lost(child.process.pid, how)
            child.fruitless = 0 if has_worked else child.fruitless + 1
            # One that was killed may fare better next time; one that gave up by itself, with nothing done, will not.
            if child.fruitless > self._max_restarts or (status > 0 and not has_worked):
                raise TrainingError(f"{how}: {last_line(self._folder / f'{name}.txt') or 'it printed nothing'}")
            forget_child(child.process)
            child.process = self._launch(name, child.arguments)
            said.append(f"{how} and is started again")
        return said

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let the workers end by themselves for half of the grace, not at all after an error; then end them."""
        own_s = self._grace_s / 2 if error is None else 0.0
        end_processes([child.process for child in self._children.values()], own_s=own_s, asked_s=self._grace_s - own_s)
        if self._server is not None:
            self._server.close()
