"""Define the worker that collects rows: a collect role that returns what it collected to whoever calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ding_like.comm.channels import Order
from ding_like.errors import ConfigError
from ding_like.pipeline.build.collect_end import CollectionResult, Info, rows_to_send
from ding_like.pipeline.build.collecting_parts import CollectingParts
from ding_like.pipeline.build.factories import COMPONENTS, no_envs
from ding_like.pipeline.ray.worker import Worker
from ding_like.policy.device import device_named
from ding_like.worker.collector.stop_rule import whole_number


class CWorker(CollectingParts, Worker):
    """Collect rows with an actor in envs of its own, and evaluate it; a worker without envs holds parameters.

    `set_weights` and `stop_collecting` may be called while it collects. `algo`, `actor`, `storage`, `envs_train` and
    `envs_test` are as their factories made them. Source: PyTorchRL's CWorker.
    """

    # Any, here and below: a part is of any class that has what is used of it.
    def __init__(
        self, index_worker: int, index_parent: int, algo_factory: Callable[..., Any], actor_factory: Callable[..., Any],
        storage_factory: Callable[..., Any], fraction_samples: float = 1.0, compress_data_to_send: bool = False,
        train_envs_factory: Callable[..., Any] = no_envs, test_envs_factory: Callable[..., Any] = no_envs,
        initial_weights: Any = None, device: str | torch.device | None = None, *, notes: str | None = None,
    ) -> None:  # fmt: skip
        """Make the parts: actor, algorithm, storage, envs; the actor computes on `device` (None: "cpu").

        A collection that is told to stop does so once `fraction_samples` of its steps are taken; 1.0: it takes all.
        `notes` is a folder for what `last_action` reads. Raises ConfigError for a device that is absent.
        """
        super().__init__(index_worker)
        if not 0 < fraction_samples <= 1:
            raise ConfigError(f"fraction_samples is {fraction_samples!r}; expected more than 0, at most 1.")
        self.index_parent, self.fraction_samples = index_parent, fraction_samples
        self.compress_data_to_send = compress_data_to_send
        self.device = device_named(device or "cpu")
        self.iter = self.samples_collected = self._num_evals = 0
        self._make_parts(
            algo=algo_factory, actor=actor_factory, storage=storage_factory, train_envs=train_envs_factory,
            test_envs=test_envs_factory, initial_weights=initial_weights, notes=notes,
        )  # fmt: skip

    @property
    def update_every(self) -> int:
        """Return the rows to collect between two stages of updates."""
        return int(self.algo.update_every or self.storage.max_size)

    @property
    def updates_per_iter(self) -> int:
        """Return the updates after each collection."""
        return int(self.algo.updates_per_iter)

    def collect_data(
        self, listen_to: Iterable[str | tuple[str, int]] = (), data_to_cpu: bool = True, *, order: Order | None = None
    ) -> tuple[Any, Info]:
        """Collect what `order` wants, by default `update_every` rows; return (rows, info) as `rows_to_send` does.

        `listen_to` has the keywords that may stop it, as (keyword, round) or alone: then the round is `iter`. Where
        there are test envs, and `algo.is_test_due` before the updates that follow, it evaluates first.
        """
        is_tested = self.envs_test is not None and self.algo.is_test_due(self.iter)
        test_return = self.evaluate() if is_tested else None
        seconds, _ = self.collect_train_data(None, listen_to, order=order)
        segment, self.iter = self.storage.take(), self.iter + 1
        info = self._collecting().info(segment, seconds=seconds, test_return=test_return)
        device = None if data_to_cpu else self.device
        return rows_to_send(segment, info, compress=self.compress_data_to_send, device=device)

    def collect_train_data(
        self, num_steps: int | None = None, listen_to: Iterable[str | tuple[str, int]] = (), *,
        order: Order | None = None,
    ) -> CollectionResult:  # fmt: skip
        """Collect `num_steps` rows, or what `order` wants, into `storage`; open episodes go on from call to call."""
        end, started = self._collecting(), time.perf_counter()
        rows = whole_number("num_steps", self.update_every if num_steps is None else num_steps)
        order = order or Order(False, rows, end.collector.envstep, None)
        order = order._replace(rows=min(order.rows, self.storage.max_size or order.rows))
        with self._weights.in_use():
            end.role.random_steps = self.algo.start_steps
            rules = self._signals.rules(listen_to, self.iter)
            end.collect(order, stop=end.stop_rule(order, self.fraction_samples, rules))
        self.samples_collected += self.storage.num_rows
        return CollectionResult(time.perf_counter() - started, end.collector.mean_return)

    def evaluate(self) -> float:
        """Return the mean return of `algo.num_test_episodes` fresh episodes in the test envs, played greedily."""
        if self.envs_test is None:
            raise ConfigError(f"worker {self.index_worker} has no test envs, or was stopped: it cannot evaluate.")
        with self._weights.in_use():
            self._num_evals += 1
            return float(self.algo.evaluate(self.envs_test, self._weights, number=self._num_evals).mean)

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
        """Put what the factory makes, called as the constructor calls it, in place of a part; True if there is one.

        `component_name` is an attribute or a key of COMPONENTS. Envs that are replaced are closed.
        """
        name = COMPONENTS.get(component_name, component_name)
        if name not in COMPONENTS.values():
            return super().replace_agent_component(name, new_component_factory)
        self._replace_part(name, new_component_factory)
        return True
