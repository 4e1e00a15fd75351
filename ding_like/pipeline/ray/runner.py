"""Runner of a Ray scheme, and what builds it from a run's config."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from ding_like.comm.workers.failures import FailureLog
from ding_like.config import FrozenConfig
from ding_like.errors import CommError, TrainingError
from ding_like.pipeline.build.driver_end import DriverEnd
from ding_like.pipeline.build.envs import EnvSetting
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.build.serial import Components
from ding_like.pipeline.ray.scheme import Scheme
from ding_like.pipeline.ray.settings import RaySettings
from ding_like.pipeline.roles.remote_collectors import RemoteCollectors
from ding_like.pipeline.runner import Runner, RunnerLostError
from ding_like.types import Setting, State
from ding_like.utils.interval import Interval

_METRICS_S = 1.0
_MEASURES = ("PolicyLag", "GradientAsynchrony", "data_age_s")


class RayRunner:
    """Runner whose iterations are steps of a UWorker: rows are collected, and every update that they allow is made."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme, self._worker = scheme, scheme.update_worker
        self._measures: dict[str, deque[float]] = {name: deque(maxlen=100) for name in _MEASURES}
        self._metrics_due = Interval(_METRICS_S, starts_due=True)

    @property
    def setting(self) -> Setting:
        """Setting that collectors were sent last."""
        end = self._scheme.end
        assert end is not None, "a run has parts"
        if isinstance(end.parts.collector, RemoteCollectors):
            return end.parts.collector.setting
        found: Setting = self._worker.local_worker.c_workers.local_worker().setting
        return found

    def start(self) -> None:
        """Collect the rows of random actions."""
        self._translate_errors(self._scheme.collect_random)

    def step(self) -> None:
        """Run one iteration: updates until the minibatches of its rows are used up. Raises RunnerLostError."""
        self._translate_errors(self._step)

    def _step(self) -> None:
        local, goes_on = self._worker.local_worker, True
        while goes_on:
            self._note(self._worker.step())
            goes_on = self._worker.is_stepped_here and not (
                local.is_between_batches and (self._scheme.is_leaving() or not local.has_batch())
            )

    def _note(self, info: Mapping[str, Any]) -> None:
        for name, values in self._measures.items():
            if name in info:
                values.append(float(info[name]))
        end = self._scheme.end
        if end is not None and end.parts.metrics is not None and info.get("HasGradient") and self._metrics_due.pass_s():
            numbers = {name: value for name, value in self._means().items() if not math.isnan(value)}
            learner = end.parts.learner
            end.parts.metrics.write("updates", numbers, env_step=self._scheme.env_step, train_iter=learner.train_iter)

    def _means(self) -> dict[str, float]:
        return {name: sum(values) / len(values) if values else math.nan for name, values in self._measures.items()}

    def flush(self) -> None:
        """Wait for the update under way, and fetch what other processes have learned."""
        self._translate_errors(self._worker.settle)

    def rescue(self) -> bool:
        """Return whether a point can be saved after RunnerLostError: what decentralised ranks have learned is lost."""
        if self._scheme.is_decentralized:
            return False
        try:
            self._worker.settle()
        except (CommError, TrainingError):
            return False
        return True

    def workers(self) -> Mapping[str, str]:
        """Return how the workers fare, for the run's panel."""
        measured = {name: f"{value:.3g}" for name, value in self._means().items() if value == value and value}
        return {**self._scheme.describe(), **measured}

    def state_dict(self) -> State:
        """Return how much was collected and how many updates were made of it."""
        end = self._scheme.end
        assert end is not None, "a run has parts"
        return {"rows": end.rows_state(), "random_rows": self._scheme.random_rows}

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned: collect what is left of the random actions."""
        end = self._scheme.end
        if state and end is not None:
            end.rows.load_state_dict(state["rows"])
        self._scheme.random_rows = max(0, state.get("random_rows", 0))
        self.start()
        self._translate_errors(self._finish)

    def _finish(self) -> None:
        """Make the updates that were due when the point was saved."""
        if self._worker.is_stepped_here:
            self._worker.local_worker.begin_batches()
            if self._worker.local_worker.has_batch():
                self._step()

    def close(self) -> None:
        """End the workers."""
        self._scheme.stop()

    def _translate_errors(self, act: Callable[[], object]) -> None:
        """Call `act`. Raises RunnerLostError where the workers or their cluster are lost."""
        try:
            act()
        except CommError as error:
            raise RunnerLostError(str(error)) from error
        except TrainingError as error:
            if self._scheme.has_failed_workers:
                raise RunnerLostError(str(error)) from error
            raise


_COMMUNICATION = {"sync": "synchronous", "async": "asynchronous", None: "synchronous"}


def ray_runner(
    cfg: FrozenConfig,
    parts: Components,
    settings: RaySettings,
    *,
    seed: int,
    log: FailureLog | None = None,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    dynamic_seed: bool = True,
) -> Callable[[Callable[[], bool]], Runner]:
    """Return what makes the runner of a run with these parts (`build_driver`), whose workers run on Ray."""
    fitted: Any = parts.policy.cfg
    made = SchemeFactories.of(
        cfg, seed=seed, env_setting=env_setting, model=model, dynamic_seed=dynamic_seed, fitted=fitted
    )

    def make_runner(is_leaving: Callable[[], bool]) -> Runner:
        # Known once the parts stand where the run begins or goes on.
        factories = replace(made, begun_at=parts.collector.envstep)
        scheme = Scheme(
            factories.algo,
            factories.learning_actor,
            factories.storage,
            factories.train_envs,
            num_col_workers=settings.collect.workers,
            num_grad_workers=settings.grad.workers,
            col_workers_communication=_COMMUNICATION[settings.collect.comm],
            grad_workers_communication=_COMMUNICATION[settings.grad.comm],
            decentralized_update_execution=settings.update.decentralized,
            local_device=settings.update.device,
            settings=settings,
            end=DriverEnd(cfg, parts),
            log=log,
            is_leaving=is_leaving,
        )
        return RayRunner(scheme)

    return make_runner
