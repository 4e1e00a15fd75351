"""Define the worker that collects rows: a collect role that returns what it collected to whoever calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ding_like.comm.channels import Order
from ding_like.comm.workers.last_action import LastAction
from ding_like.errors import ConfigError
from ding_like.pipeline.build.collect_end import CollectEnd, CollectionResult, Info, collector_name, rows_to_send
from ding_like.pipeline.build.factories import COMPONENTS, no_envs
from ding_like.pipeline.build.held_weights import HeldWeights
from ding_like.pipeline.ray.worker import Worker
from ding_like.policy.device import device_named
from ding_like.worker.collector.stop_rule import StopSignals, whole_number


class CWorker(Worker):
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
        self.envs_train = self.envs_test = None
        self._end: CollectEnd | None = None
        self._signals = StopSignals()
        self._notes = LastAction.open(notes, collector_name(index_worker, index_parent))
        try:
            self.actor = actor_factory(self.device)
            self.algo = algo_factory(self.device, self.actor)
            self.storage = storage_factory(self.device, self.actor, self.algo)
            self._weights = HeldWeights(self.actor)
            if initial_weights is not None:
                self.set_weights(initial_weights)
            self._use_envs(train_envs_factory(self.device, index_worker, index_parent))
            self.envs_test = test_envs_factory(self.device, index_worker, index_parent, "test")
        except BaseException:
            self.stop()
            raise

    def _use_envs(self, envs: Any) -> None:
        """Collect in these envs, from their first episodes on, in place of those before; None: nowhere."""
        before, self._end, self.envs_train = self._end, None, envs
        if before is not None:
            before.close()
        if envs is not None:
            self._end = end = self.algo.collect_end(envs, self.index_worker, self.index_parent)
            end.connect(self._weights, self.storage)
            end.collector.envstep = 0 if before is None else before.collector.envstep
            end.note_actions(self._notes)
            self._weights.tell_statistics(end.statistics.use)

    def set_weights(self, actor_weights: Any) -> None:
        """Take weights over, unless they are older: now, or before the next collection if one is under way.

        They are {"version": int, "weights": the state dict of the actor's collect mode}, or what a HostWeightPublisher
        sends. Raises CommError that names the first tensor which does not fit.
        """
        self._weights.put(actor_weights)

    @property
    def actor_version(self) -> int:
        """Return the number of updates of the actor's weights."""
        return self._weights.version.update

    def stop_collecting(self, round_id: int, keyword: str = "sync") -> None:
        """Tell collections of round `round_id`, and of those before it, that listen to `keyword` to stop."""
        self._signals.stop(round_id, keyword)

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

    def _collecting(self) -> CollectEnd:
        if self._end is None:
            raise ConfigError(f"worker {self.index_worker} has no train envs, or was stopped: it cannot collect.")
        return self._end

    obs = property(lambda self: self._end and self._end.obs, doc="The newest observation of each train env, tensors.")
    rhs = property(lambda self: self._end and self._end.recurrent_state, doc="The actor's recurrent state, by name.")
    done = property(lambda self: self._end and self._end.done, doc="The train envs that begin an episode next.")

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
        name, place = COMPONENTS.get(component_name, component_name), (self.index_worker, self.index_parent)
        given = dict(algo=(self.actor,), storage=(self.actor, self.algo), envs_train=place, envs_test=(*place, "test"))
        if name not in COMPONENTS.values():
            return super().replace_agent_component(name, new_component_factory)
        new, before = new_component_factory(self.device, *given.get(name, ())), getattr(self, name)
        setattr(self, name, new)
        if name == "envs_train":
            self._use_envs(new)
        elif name == "envs_test" and before is not None:
            before.close()
        elif name == "actor":
            self._weights.use_policy(new)
            self.algo.policy = new
        if self._end is not None and name in ("actor", "storage"):
            self._end.use_policy(self.actor, self.storage)
        return True

    def stop(self) -> None:
        """Close the envs and what else the worker has opened; may be called again."""
        for part in (self._end, self.envs_train, self.envs_test, self._notes):
            if part is not None:
                part.close()
        self._end = self._notes = self.envs_train = self.envs_test = None
