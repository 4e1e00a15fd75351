"""Runner of a Ray scheme, and what builds it from a run's config."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from ding_like.comm.ray.actors import ClusterLoss
from ding_like.comm.ray.cluster import ClusterWatch
from ding_like.comm.workers.failures import FailureLog
from ding_like.config import FrozenConfig
from ding_like.errors import CommError, TrainingError
from ding_like.pipeline.components import Components
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.factories import SchemeFactories
from ding_like.pipeline.learner_side import LearnerSide
from ding_like.pipeline.ray.scheme import Scheme
from ding_like.pipeline.ray.settings import COMMUNICATION, RaySettings
from ding_like.pipeline.remote_collectors import RemoteCollectors
from ding_like.pipeline.training_loop import MakeRunner, Runner, RunnerLostError
from ding_like.types import Setting, State
from ding_like.utils.timing import Interval

_METRICS_S = 1.0
_RESCUE_S = 15.0  # for workers of a lost cluster to answer: Ray ends this process after a minute
_MEASURES = ("PolicyLag", "GradientAsynchrony", "data_age_s")


class RayRunner:
    """Runner whose iterations are steps of a UWorker: rows are collected, and every update that they allow is made.

    With a `watch`, every iteration begins with a check of the cluster, whose loss the workers notice too late.
    """

    def __init__(self, scheme: Scheme, end: LearnerSide, watch: ClusterWatch | None = None) -> None:
        self._scheme, self._worker, self._end, self._watch = scheme, scheme.update_worker, end, watch
        self._measures: dict[str, deque[float]] = {name: deque(maxlen=100) for name in _MEASURES}
        self._metrics_due = Interval(_METRICS_S, starts_due=True)

    @property
    def setting(self) -> Setting:
        """Setting that collectors were sent last."""
        report = self._end.parts.collector
        local = self._worker.local_worker.c_workers.local_worker()
        found: Setting = report.setting if isinstance(report, RemoteCollectors) else local.setting
        return found

    def start(self) -> None:
        """Collect the rows of random actions."""
        self._guarded(self._scheme.collect_random)
        self._guarded(lambda: None)

    def step(self) -> None:
        """Run one iteration: updates until the minibatches of its rows are used up. Raises RunnerLostError."""
        self._guarded(self._step)

    def _step(self) -> None:
        local, has_more = self._worker.local_worker, True
        while has_more:
            self._record(self._worker.step())
            has_more = self._worker.is_stepped_here and not (
                local.is_between_batches and (self._scheme.is_leaving() or not local.has_batch())
            )

    def _record(self, info: Mapping[str, Any]) -> None:
        for name, values in self._measures.items():
            if name in info:
                values.append(float(info[name]))
        parts = self._end.parts
        if parts.metrics is not None and info.get("HasGradient") and self._metrics_due.pass_s():
            env_step, train_iter = self._scheme.env_step, parts.learner.train_iter
            parts.metrics.write("updates", self._means(), env_step=env_step, train_iter=train_iter)

    def _means(self) -> dict[str, float]:
        means = {name: sum(values) / len(values) for name, values in self._measures.items() if values}
        return {name: mean for name, mean in means.items() if not math.isnan(mean)}

    def flush(self) -> None:
        """Wait for the update under way, and fetch what other processes have learned."""
        self._translate_errors(self._worker.settle)

    def rescue(self) -> bool:
        """Return whether a point can be saved after RunnerLostError: what decentralised ranks have learned is lost."""
        if self._scheme.is_decentralized:
            return False
        # Workers may answer while the head of their cluster does not.
        limit = threading.Timer(_RESCUE_S, self._note_loss)
        limit.daemon = True
        limit.start()
        try:
            self._worker.settle()
        except (CommError, TrainingError):
            return False
        finally:
            limit.cancel()
            limit.join()
        return True

    def _note_loss(self) -> None:
        if self._watch is not None and self._watch.lost is not None:
            ClusterLoss.note(self._watch.lost)

    def workers(self) -> Mapping[str, str]:
        """Return the status of the workers, for the run's panel."""
        measured = {name: f"{value:.3g}" for name, value in self._means().items() if value}
        store = {} if self._watch is None else {"store": str(self._watch.store())}
        return {**self._scheme.describe(), **measured, **store}

    def state_dict(self) -> State:
        """Return how much was collected and how many updates were made of it."""
        return {"rows": self._end.rows_state(), "random_rows": self._scheme.random_rows}

    def load_state_dict(self, state: State) -> None:
        """Resume from `state_dict`: collect the missing random rows, and make the updates that were due."""
        if state:
            self._end.rows.load_state_dict(state["rows"])
        self._scheme.random_rows = max(0, state.get("random_rows", 0))
        self.start()
        self._guarded(self._finish)

    def _finish(self) -> None:
        if self._worker.is_stepped_here:
            self._worker.local_worker.begin_batches()
            if self._worker.local_worker.has_batch():
                self._step()

    def close(self) -> None:
        """End the workers; those of a lost cluster are not waited for."""
        self._note_loss()
        self._scheme.stop()

    def _guarded(self, act: Callable[[], object]) -> None:
        """Call `act`. Raises RunnerLostError where the cluster is lost already, or the workers are lost meanwhile."""
        if self._watch is not None and self._watch.lost is not None:
            raise RunnerLostError(f"{self._watch.describe_loss()}.")
        self._translate_errors(act)

    def _translate_errors(self, act: Callable[[], object]) -> None:
        try:
            act()
        except CommError as error:
            raise RunnerLostError(str(error)) from error
        except TrainingError as error:
            if self._scheme.has_failed_workers:
                raise RunnerLostError(str(error)) from error
            raise


def ray_runner(
    cfg: FrozenConfig, parts: Components, settings: RaySettings, *, seed: int, log: FailureLog | None = None,
    env_setting: EnvSetting | None = None, model: torch.nn.Module | None = None, dynamic_seed: bool = True,
    watch: ClusterWatch | None = None,
) -> MakeRunner:  # fmt: skip
    """Return what makes the runner of a run with these parts (`build_driver`), whose workers run on Ray."""
    fitted: Any = parts.policy.cfg
    made = SchemeFactories.of(
        cfg, seed=seed, env_setting=env_setting, model=model, dynamic_seed=dynamic_seed, fitted=fitted
    )

    def make_runner(is_leaving: Callable[[], bool]) -> Runner:
        # Known once the parts have been restored.
        factories, end = replace(made, begun_at=parts.collector.envstep), LearnerSide(cfg, parts)
        scheme = Scheme(
            factories.algo, factories.learning_actor, factories.storage, factories.train_envs,
            num_col_workers=settings.collect.workers, num_grad_workers=settings.grad.workers,
            col_workers_communication=COMMUNICATION[settings.collect.comm or "sync"],
            grad_workers_communication=COMMUNICATION[settings.grad.comm],
            decentralized_update_execution=settings.update.decentralized, local_device=settings.update.device,
            settings=settings, end=end, log=log,
            is_leaving=lambda: is_leaving() or (watch is not None and watch.lost is not None),
        )  # fmt: skip
        return RayRunner(scheme, end, watch)

    return make_runner
