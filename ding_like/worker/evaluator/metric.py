"""Evaluate a supervised policy on a data set, by a metric."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, ClassVar, TypeAlias

import torch

from ding_like.errors import ConfigError
from ding_like.types import EnvLike, PolicyLike, State
from ding_like.utils.bounds import ANY_NUMBER, FROM_1, Bounds
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.worker.evaluator.base import BaseSerialEvaluator

# What a metric measures is its own matter: numbers by name, for instance {"accuracy": 0.97}.
Metric = Any


# (inputs, labels), again and again; a label for each item.
Batches: TypeAlias = Iterable[tuple[object, Sized]]


class IMetric(ABC):
    """Measure what a policy makes of inputs whose labels are known."""

    # What a policy and a data set give is theirs alone: hence Any.
    @abstractmethod
    def eval(self, inputs: Any, label: Any) -> Metric:
        """Return the metric of one batch; `inputs` is what the policy computed from it."""

    @abstractmethod
    def reduce_mean(self, inputs: Sequence[Metric]) -> Metric:
        """Return the mean of the metrics of batches of equal size."""

    @abstractmethod
    def gt(self, metric1: Metric, metric2: Metric) -> bool:
        """Return whether the first metric is better than the second; any is better than None."""


@SERIAL_EVALUATOR_REGISTRY.register("metric")
class MetricSerialEvaluator(BaseSerialEvaluator):
    """Run a policy over a data set and keep the best model; `env` is (batches of (inputs, labels), an IMetric).

    The batches are asked for again at every evaluation, as of a `torch.utils.data.DataLoader`.
    """

    config: dict[str, Any] = dict(
        type="metric",
        # Updates between two evaluations.
        eval_freq=50,
        # Metric that ends the run: when an evaluation is better, or equal where it is a number by name.
        stop_value=None,
        # A key of DI-engine's configs: see `without_effect`.
        multi_gpu=False,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "eval_freq": FROM_1,
        "stop_value": ANY_NUMBER,
    }
    without_effect: ClassVar[Mapping[str, str]] = {"multi_gpu": "one process evaluates"}
    config_types = {"stop_value": (int, float, dict)}

    _batches: Batches | None = None
    _metric: IMetric | None = None
    _policy: Any = None  # an eval mode: `forward(inputs)` gives what the metric takes

    def reset_env(self, _env: EnvLike = None) -> None:
        """Evaluate on other data if some are given: (batches, an IMetric). Raises ConfigError for anything else."""
        if _env is None:
            return
        if not isinstance(_env, (tuple, list)) or len(_env) != 2 or not isinstance(_env[1], IMetric):
            raise ConfigError(
                "evaluator 'metric' takes env=(batches of (inputs, labels), an IMetric), as a tuple or a list; "
                f"got {_env!r:.200}."
            )
        self._batches, self._metric = _env

    def reset_policy(self, _policy: PolicyLike = None) -> None:
        """Evaluate another policy if one is given."""
        if _policy is not None:
            self._policy = _policy
        if self._policy is not None:
            self._policy.reset()

    def reset(self, _policy: PolicyLike = None, _env: EnvLike = None) -> None:
        """Reset data, policy and the best metric."""
        super().reset(_policy, _env)
        self.best_metric: Metric = None

    def eval(
        self, save_ckpt_fn: Callable[[str], None] | None = None, train_iter: int = -1, envstep: int = -1
    ) -> tuple[bool, Metric]:
        """Evaluate on all data, log, and call `save_ckpt_fn('ckpt_best.pth.tar')` if the metric is a new best.

        Returns (stop, metric): stop says that the metric is no worse than `stop_value` after training began.
        """
        started = time.perf_counter()
        found = self.measure()
        self._last_eval_iter = train_iter
        assert self._metric is not None, "measure() refuses without one"
        self._log(found, duration_s=time.perf_counter() - started, train_iter=train_iter, envstep=envstep)
        if self._metric.gt(found, self.best_metric):
            self.best_metric = found
            if save_ckpt_fn is not None:
                save_ckpt_fn("ckpt_best.pth.tar")
        bar = self._cfg.get("stop_value")
        stop = bar is not None and train_iter > 0 and (self._metric.gt(found, bar) or found == bar)
        return stop, found

    def measure(self) -> Metric:
        """Return the metric over all data, each item counting as much as any other. Raises ConfigError without data."""
        if self._batches is None or self._metric is None or self._policy is None:
            raise ConfigError("the evaluator needs data and a policy before eval(): call reset(policy, env).")
        by_size: dict[int, list[Metric]] = {}
        with torch.inference_mode():
            for inputs, label in self._batches:
                output = self._policy.forward(inputs)
                by_size.setdefault(len(label), []).append(self._metric.eval(output, label))
        if not by_size:
            raise ConfigError("the evaluator's data set is empty.")
        parts = [(size * len(each), self._metric.reduce_mean(each)) for size, each in by_size.items()]
        return parts[0][1] if len(parts) == 1 else _weighted(parts)

    def _log(self, found: Metric, *, duration_s: float, train_iter: int, envstep: int) -> None:
        numbers = found if isinstance(found, Mapping) else {"metric": found}
        values = {name: float(value) for name, value in numbers.items() if isinstance(value, (int, float))}
        values["evaluate_time"] = duration_s
        self._write(values, train_iter=train_iter, envstep=envstep)

    def state_dict(self) -> State:
        """Return what an exact resume needs."""
        return {"best_metric": self.best_metric, "last_eval_iter": self._last_eval_iter}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self.best_metric, self._last_eval_iter = state["best_metric"], state["last_eval_iter"]


def _weighted(parts: Sequence[tuple[int, Metric]]) -> Metric:
    """Return the mean of metrics of different numbers of items: numbers, or numbers by name."""
    total = sum(items for items, _ in parts)
    if all(isinstance(each, Mapping) for _, each in parts):
        return {name: sum(items * each[name] for items, each in parts) / total for name in parts[0][1]}
    return sum(items * each for items, each in parts) / total
