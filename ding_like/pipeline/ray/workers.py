"""Workers of a scheme that collect rows in envs of their own, and workers that compute gradients of their rows."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.comm.channels import CollectRequest, Segment
from ding_like.comm.learner_group import LearnerGroup
from ding_like.comm.ray.cluster import Need, resources_of
from ding_like.comm.tensors import pack_rows, pack_state, unpack_rows, unpack_state
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.pipeline.collect import collector_name
from ding_like.pipeline.learners.synced import EqualityCheck, pack_learn_state, restored
from ding_like.pipeline.ray.plain import PlainWeights, StepCollector, mean_test_return
from ding_like.pipeline.ray.worker_set import (
    COMMUNICATIONS,
    EXECUTIONS,
    LOOK_S,
    ProducerThread,
    RemoteWorker,
    Reply,
    Worker,
    WorkerSet,
    check_fraction,
    check_word,
)
from ding_like.pipeline.rows import shares
from ding_like.pipeline.scheme_parts import COMPONENTS, no_envs
from ding_like.policy.base import device_named
from ding_like.types import Array, Config, Factory, Info, Json, Setting, State
from ding_like.worker.collector.loop import StopRule, StopSignals, whole_number

logger = logging.getLogger(__name__)

# What PyTorchRL gives a worker.
RESOURCES = MappingProxyType(dict(memory=5 * 2**30, num_cpus=1, num_gpus=0.2, object_store_memory=2 * 2**30))
Weights = Mapping[str, object]  # {"version": int, "weights": state dict}, or what a gradient worker sends
Signals = Iterable[str | tuple[str, int]]  # keywords that may stop a collection, of its round or of the given one


class CollectionResult(NamedTuple):
    """Result of a collection into a storage."""

    col_time: float  # seconds
    train_perf: float  # mean return of recent episodes, NaN before the first has ended


class CWorker(Worker):
    """Worker that collects rows with an actor in envs of its own, and evaluates it; without envs it holds parameters.

    `set_weights` and `stop_collecting` may be called while it collects. `algo`, `actor`, `storage`, `envs_train` and
    `envs_test` are as their factories made them; docs/ray_parts.md lists the members of each. Source: PyTorchRL's
    CWorker.
    """

    # Any, here and below: a part is of any class that has what is called on it.
    def __init__(
        self, index_worker: int, index_parent: int, algo_factory: Factory, actor_factory: Factory,
        storage_factory: Factory, fraction_samples: float = 1.0, compress_data_to_send: bool = False,
        train_envs_factory: Factory = no_envs, test_envs_factory: Factory = no_envs,
        initial_weights: object = None, device: str | torch.device | None = None,
    ) -> None:  # fmt: skip
        """Make the parts: actor, algorithm, storage, envs; the actor computes on `device` (None: "cpu").

        A collection that is stopped early has `fraction_samples` of its rows at least; 1.0: it is never stopped.
        Raises ConfigError for a device that is absent. If a factory raises, nothing stays open.
        """
        super().__init__(index_worker)
        if not 0 < fraction_samples <= 1:
            raise ConfigError(f"fraction_samples is {fraction_samples!r}; expected more than 0, at most 1.")
        self.index_parent, self.fraction_samples = index_parent, fraction_samples
        self.compress_data_to_send = compress_data_to_send
        self.device = device_named(device or "cpu")
        self.iter = self.samples_collected = self._num_evals = 0
        self._signals = StopSignals()
        self._collector: Any = None  # what steps the train envs: a RolloutWorker or a StepCollector
        self.envs_train = self.envs_test = None
        try:
            self.actor = actor_factory(self.device)
            self.algo = algo_factory(self.device, self.actor)
            self.storage = storage_factory(self.device, self.actor, self.algo)
            hold: Callable[..., Any] = getattr(self.algo, "hold_weights", PlainWeights)
            self._weights = hold(self.actor)
            if initial_weights is not None:
                self.set_weights(_fetched(initial_weights))
            self._use_envs(train_envs_factory(self.device, index_worker, index_parent))
            self.envs_test = test_envs_factory(self.device, index_worker, index_parent, "test")
        except BaseException:
            self.stop()
            raise

    def _use_envs(self, envs: Any) -> None:
        """Collect in these envs, from their first episodes on, in place of those before; None: in none."""
        before, self._collector, self.envs_train = self._collector, None, envs
        if before is not None:
            before.close()
        if envs is None:
            return
        if hasattr(self.algo, "rollout_worker"):
            place = self.index_worker, self.index_parent
            self._collector = self.algo.rollout_worker(envs, *place, self._weights, self.storage)
        else:
            self._collector = StepCollector(envs, self, self._weights)
        if before is not None:
            self._collector.envstep = before.envstep

    # --- collecting

    @property
    def update_every(self) -> int:
        """Number of rows to collect between two stages of updates."""
        return int(self.algo.update_every or self.storage.max_size)

    @property
    def updates_per_iter(self) -> int:
        """Number of updates after each collection."""
        algo = self.algo
        own = getattr(algo, "updates_per_iter", None)
        return int(algo.num_mini_batch * algo.num_epochs if own is None else own)

    def collect_data(
        self, listen_to: Signals = (), data_to_cpu: bool = True, *, order: CollectRequest | None = None
    ) -> tuple[object, Info]:
        """Collect what `order` asks for, by default `update_every` rows; return (rows, info).

        Rows are columns by name, with `compress_data_to_send` one frame, or a list of rows that do not stack.
        `listen_to` has the keywords of signals that may stop it, as (keyword, round), or alone for round `iter`. Where
        there are test envs, and a multiple of `algo.test_every` is among the updates that follow, it evaluates first.
        `info["Segment"]` is the segment with None in place of each row.
        """
        tested = {"TestReward": self.evaluate()} if self._is_test_due() else {}
        seconds = self.collect_train_data(None, listen_to, order=order).col_time
        self.iter += 1
        segment: Segment = self._present_collector().take()
        batch, means = segment.batch, {"TrainReward": "return", "TrainLength": "length"}
        episodes = {name: segment.stats.get(key) for name, key in means.items()}
        info = {
            "Episodes": {**{name: math.nan if it is None else it for name, it in episodes.items()}, **tested},
            "Time": {"DataCollection": seconds},
            "ActorVersion": {"DataCollection": segment.version.update},
            "NumberSamples": len(batch),
            "EnvSteps": segment.env_steps,
            "Segment": replace(segment, batch=[None] * len(batch)),
        }
        if not isinstance(batch, TransitionBatch):
            return batch, info
        if self.compress_data_to_send:
            return pack_rows(batch), info
        return dict((batch if data_to_cpu else batch.to(self.device)).columns), info

    def _is_test_due(self) -> bool:
        every, updates = int(getattr(self.algo, "test_every", None) or 0), self.updates_per_iter
        return self.envs_test is not None and every > 0 and -self.iter * updates % every < max(updates, 1)

    def collect_train_data(
        self, num_steps: int | None = None, listen_to: Signals = (), *,
        order: CollectRequest | None = None,
    ) -> CollectionResult:  # fmt: skip
        """Collect `num_steps` rows, or what `order` asks for, into `storage`; open episodes continue between calls."""
        collector, started = self._present_collector(), time.perf_counter()
        rows = whole_number("num_steps", self.update_every if num_steps is None else num_steps)
        order = order or CollectRequest(False, rows, collector.envstep, None)
        order = order._replace(rows=min(order.rows, self.storage.max_size or order.rows))
        signalled, stop = self._signals.rule(listen_to, self.iter), None
        with self._weights.in_use():
            collector.random_steps = getattr(self.algo, "start_steps", 0)
            if self.fraction_samples < 1 and signalled is not None:
                least = math.ceil(self.fraction_samples * order.rows - 1e-9)  # 0.07 * 100 is a little more than 7
                stop = partial(_are_met, collector.rows_rule(max(least, 1)), signalled)
            collector.collect(order, stop=stop)
        self.samples_collected += collector.num_collected
        return CollectionResult(time.perf_counter() - started, collector.mean_return)

    def evaluate(self) -> float:
        """Return the mean return of `algo.num_test_episodes` fresh episodes in the test envs, played greedily."""
        if self.envs_test is None:
            raise ConfigError(f"worker {self.index_worker} has no test envs, or was stopped: it cannot evaluate.")
        with self._weights.in_use():
            self._num_evals += 1
            if hasattr(self.algo, "evaluate"):
                return float(self.algo.evaluate(self.envs_test, self._weights, number=self._num_evals).mean)
            return mean_test_return(self.envs_test, self.algo, int(self.algo.num_test_episodes))

    def replace_agent_component(self, component_name: str, new_component_factory: Factory) -> bool:
        """Replace a part by what the factory makes, called as the constructor calls it; return whether there is one.

        `component_name` is an attribute or a key of COMPONENTS. Envs that are replaced are closed.
        """
        name = COMPONENTS.get(component_name, component_name)
        if name not in COMPONENTS.values():
            return super().replace_agent_component(name, new_component_factory)
        place = self.index_worker, self.index_parent
        given = dict(algo=(self.actor,), storage=(self.actor, self.algo), envs_train=place, envs_test=(*place, "test"))
        new, before = new_component_factory(self.device, *given.get(name, ())), getattr(self, name)
        setattr(self, name, new)
        if name == "envs_train":
            self._use_envs(new)
        elif name == "envs_test" and before is not None:
            before.close()
        elif name == "actor":
            self._weights.use_policy(new)
        if hasattr(self.algo, "rollout_worker") and name in ("actor", "storage"):
            self.algo.policy = self.actor
            if self._collector is not None:
                self._collector.use_policy(self.actor, self.storage)
        return True

    # --- what may be called while it collects

    def set_weights(self, actor_weights: Weights) -> None:
        """Take weights unless they are older: now, or before the next collection if one is under way.

        Raises CommError that names the first tensor which does not fit.
        """
        self._weights.put(actor_weights)

    @property
    def actor_version(self) -> int:
        """Number of updates of the actor's weights."""
        return int(self._weights.version.update)

    def stop_collecting(self, round_id: int, keyword: str = "sync") -> None:
        """Stop collections of round `round_id`, and of those before it, that listen to `keyword`."""
        self._signals.stop(round_id, keyword)

    # --- where it is

    @property
    def setting(self) -> Setting:
        """Setting that the policy acted with last: exploration, say."""
        found: Setting = getattr(self._collector, "setting", {})
        return found

    @property
    def obs(self) -> torch.Tensor | dict[str, torch.Tensor] | None:
        """Newest observation of each train env [E, O...], a tensor or a dict of them; None without envs."""
        return None if self._collector is None else self._collector.obs

    @property
    def rhs(self) -> object:
        """Recurrent state of the actor by name [E, S...], empty for one without; None without train envs."""
        return None if self._collector is None else self._collector.recurrent_state

    @property
    def done(self) -> torch.Tensor | None:
        """Bool[E], the train envs that begin an episode next; None without any."""
        return None if self._collector is None else self._collector.done

    def _present_collector(self) -> Any:
        if self._collector is None:
            raise ConfigError(f"worker {self.index_worker} has no train envs, or was stopped: it cannot collect.")
        return self._collector

    def stop(self) -> None:
        """Close the envs and what else the worker has opened; may be called again."""
        for part in (self._collector, self.envs_train, self.envs_test):
            if part is not None:
                part.close()
        self._collector = self.envs_train = self.envs_test = None


class CWorkerSet(WorkerSet):
    """Set of a local CWorker and `num_workers` remote ones, all of the gradient worker `index_parent`.

    In a scheme of several gradient workers (`total_parent_workers` > 0) the set of parent 0 holds parameters only. The
    local worker collects where no remote one does; with `is_apart` by a CWorker of its own, whose actor nothing else
    uses. `local_params` replace parameters of the local worker. Remote workers act on `remote_device` (None: the CPU).
    The other keywords are WorkerSet's. Source: PyTorchRL's CWorkerSet.
    """

    def __init__(
        self, num_workers: int, index_parent: int, algo_factory: Factory, actor_factory: Factory,
        storage_factory: Factory, local_device: str | torch.device | None = None,
        initial_weights: object = None, fraction_samples: float = 1.0, total_parent_workers: int = 0,
        compress_data_to_send: bool = False, train_envs_factory: Factory = no_envs,
        test_envs_factory: Factory = no_envs, worker_remote_config: Config = RESOURCES, *,
        local_params: Config | None = None, remote_device: str | None = None, is_apart: bool = False,
        worker_class: type[CWorker] = CWorker, **settings: Any,  # Any: those of WorkerSet
    ) -> None:  # fmt: skip
        holds_parameters = total_parent_workers > 0 and index_parent == 0
        params: dict[str, Any] = dict(
            index_parent=index_parent, algo_factory=algo_factory, actor_factory=actor_factory,
            storage_factory=storage_factory, fraction_samples=fraction_samples,
            compress_data_to_send=compress_data_to_send, train_envs_factory=train_envs_factory,
            test_envs_factory=test_envs_factory, initial_weights=initial_weights, device=remote_device,
        )  # fmt: skip
        local: dict[str, Any] = {"device": local_device, **(local_params or {})}
        if holds_parameters or num_workers > 0 or is_apart:
            local |= dict(train_envs_factory=no_envs, test_envs_factory=no_envs)
        super().__init__(
            worker_class, params, num_workers=0 if holds_parameters else num_workers, local_params=local,
            remote_config=worker_remote_config, kind=collector_name("", index_parent), **settings,
        )  # fmt: skip
        if is_apart and not holds_parameters:
            try:
                self.serving = worker_class(0, **{**params, "device": local_device})
            except BaseException:
                self.stop()
                raise

    @classmethod
    def create_factory(
        cls, num_workers: int, algo_factory: Factory, actor_factory: Factory,
        storage_factory: Factory, test_envs_factory: Factory,
        train_envs_factory: Factory, total_parent_workers: int = 0, col_fraction_samples: float = 1.0,
        compress_data_to_send: bool = False, col_worker_resources: Config = RESOURCES, **settings: Any,
    ) -> Callable[[str | None, object, int], CWorkerSet]:  # fmt: skip
        """Return f(device, initial_weights, index_parent), which makes such a set; `settings` are the constructor's."""
        resources = dict(col_worker_resources)

        def make(device: str | None, initial_weights: object, index_parent: int) -> CWorkerSet:
            return cls(
                num_workers, index_parent, algo_factory, actor_factory, storage_factory, device, initial_weights,
                col_fraction_samples, total_parent_workers, compress_data_to_send, train_envs_factory,
                test_envs_factory, resources, **settings,
            )  # fmt: skip

        if num_workers:
            make.need = Need("collector", num_workers, resources_of(resources))  # type: ignore[attr-defined]
        return make

    @property
    def shares_actor(self) -> bool:
        """Whether rows are collected with the local worker's actor, or not at all: no weights are sent."""
        return not self.num_asked and self.serving is self._local

    def stop(self, *, timeout_s: float = 10.0) -> None:
        if self.serving is not self._local:
            self.serving.stop()
        super().stop(timeout_s=timeout_s)


class Collected(NamedTuple):
    """Rows that a collector returned, and its info with "Worker", "Asked" and "CameS" (of the monotonic clock)."""

    data: object  # columns by name, one frame, or rows that do not stack
    info: Info


class CollectorThread(ProducerThread[Collected]):
    """Thread, or synchronous stepper, that has the collectors of a gradient worker collect.

    Synchronous, `step` has all of them collect their shares of an order; once `col_fraction_workers` of them have
    finished, the others are stopped early. Asynchronous, this thread keeps one call of `segment_rows` rows under way in
    each, and `step` returns what came first; at most `max_queue_size` segments wait, which limits the policy lag.
    `get_weights` returns the weights, which are sent at every `broadcast_interval`-th version.
    """

    def __init__(
        self, c_workers: CWorkerSet, *, col_communication: str = "synchronous", col_fraction_workers: float = 1.0,
        get_weights: Callable[[], tuple[int, Callable[[], object]] | None] = lambda: None, broadcast_interval: int = 1,
        max_queue_size: int = 100, segment_rows: int | None = None, least_rows: int = 1,
    ) -> None:  # fmt: skip
        super().__init__("collector thread", max_queue_size=max_queue_size)
        self._c_workers, self._fraction = c_workers, col_fraction_workers
        self._is_asynchronous = col_communication == "asynchronous"
        self._get_weights, self._interval = get_weights, broadcast_interval
        self._segment_rows, self._least_rows = segment_rows, least_rows
        self._order: CollectRequest | None = None  # the newest
        self._version: int | None = None  # that was broadcast last
        self._round_id = 0

    def step(
        self, order: CollectRequest | None = None, *, listen_to: tuple[tuple[str, int], ...] = ()
    ) -> list[Collected]:
        """Return what was collected: of a round, or what came first; empty if nothing came in time.

        `order` has the number of rows of a round, None: each collector's `update_every`. `listen_to` has further
        signals that may end a round early. Raises what collecting raised.
        """
        if not self._is_asynchronous:
            return self.collect_round(order, listen_to=listen_to)
        self._broadcast()
        self._order = order
        if self.ident is None and not self.stopped:
            self.start()
        found = self.next_result()
        return [] if found is None else [found]

    def produce(self) -> Collected | None:
        """Return what the first collector that is done has collected; None where none is in time."""
        order = self._order
        if order is not None:
            order = order._replace(rows=self._segment_rows or order.rows)
        reply = self._c_workers.next_ready("collect_data", timeout_s=LOOK_S, order=order)
        return None if reply is None else self._collected(reply, order)

    def _broadcast(self) -> None:
        found = self._get_weights()
        if found is None:
            return
        version, make_weights = found
        if self._version is None or version - self._version >= self._interval or version < self._version:
            self._version = version
            self._c_workers.broadcast("set_weights", make_weights())

    def collect_round(
        self, order: CollectRequest | None, *, listen_to: tuple[tuple[str, int], ...] = ()
    ) -> list[Collected]:
        """Have all collectors collect their shares of an order with the newest weights; return what came, in order."""
        self._broadcast()
        self._round_id += 1
        signal = "round", self._round_id

        def share(place: int, number: int) -> Config | None:
            if order is None:
                return {"order": None}
            rows = shares(order.rows, number)[place]
            return {"order": order._replace(rows=max(rows, self._least_rows))} if rows else None

        if not self._c_workers.num_workers:
            found = self._c_workers.serving.collect_data((signal, *listen_to), **(share(0, 1) or {}))
            return [self._collected(Reply(None, found), order)]
        replies = self._c_workers.call(
            "collect_data", (signal, *listen_to), each=share, quorum=self._fraction,
            on_quorum=lambda: self._c_workers.control("stop_collecting", *reversed(signal)),
        )  # fmt: skip
        return [self._collected(reply, order) for reply in replies]

    def _collected(self, reply: Reply, order: CollectRequest | None) -> Collected:
        (data, info), worker = reply.value, reply.worker
        name, rows = f"{self._c_workers.kind}1", order.rows if order else 0
        if worker is not None:
            name, rows = worker.name, worker.rows
        asked = max(rows, self._least_rows) if order else info["NumberSamples"]
        return Collected(data, {**info, "Worker": name, "Asked": asked, "CameS": time.monotonic()})


_END = object()  # of minibatches
_REPORTED = ("Episodes", "Time", "NumberSamples", "EnvSteps", "data_age_s")  # of collections, with the next gradient


class GradientResult(NamedTuple):
    """Gradient of a minibatch, None where it is in the worker's policy, and what is known of it and its rows."""

    gradients: Array | None
    info: Info  # numbers in nested mappings, and "Collected": infos of the collections before it


class GWorker(Worker):
    """Worker that collects rows, computes gradients of minibatches of them, and applies gradients.

    It has the collectors that `col_workers_factory(device, initial_weights, index_worker)` makes; their local worker's
    `actor` and `algo` are its own. The local GWorker of a scheme applies all updates. Source: PyTorchRL's GWorker.
    """

    def __init__(
        self, index_worker: int, col_workers_factory: Factory, col_communication: str = "synchronous",
        compress_grads_to_send: bool = False, col_execution: str = "Central", col_fraction_workers: float = 1.0,
        initial_weights: object = None, device: str | None = None, *, max_policy_lag: int | None = None,
        **collecting: Any,  # Any: keywords of CollectorThread
    ) -> None:  # fmt: skip
        """Make the collectors. Raises ConfigError for words that do not fit them."""
        super().__init__(index_worker)
        self.col_communication, self.col_execution = col_communication, col_execution
        self.col_fraction_workers, self.compress_grads_to_send = col_fraction_workers, compress_grads_to_send
        check_word("col_communication", col_communication, COMMUNICATIONS)
        check_word("col_execution", col_execution, EXECUTIONS)
        check_fraction(col_fraction_workers)
        self.device = device
        self.c_workers = col_workers_factory(device, initial_weights, index_worker)
        try:
            local = self.c_workers.local_worker()
            self.actor, self.algo, self.storage = local.actor, local.algo, local.storage
            if col_execution == "Central" and self.c_workers.num_workers:
                number = self.c_workers.num_workers
                raise ConfigError(f"col_execution is 'Central' with {number} remote collectors: give 'Parallel'.")
            if hasattr(self.algo, "learning_storage"):
                self.storage = self.algo.learning_storage(index_worker, max_policy_lag)
        except BaseException:
            self.c_workers.stop()
            raise
        self.collector = CollectorThread(
            self.c_workers, col_communication=col_communication, col_fraction_workers=col_fraction_workers,
            get_weights=self._weights_of_collectors, **collecting,
        )  # fmt: skip
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = None  # the next one, drawn already
        self._gradients: Any = None  # computed here last, where the policy does not keep them
        self.is_between_batches = True
        self._collected: list[Info] = []  # infos of collections that were not reported yet
        self._num_reported = 0  # rows of the failure log
        self._statistics: Mapping[str, Any] = {}  # of the envs' wrappers, as the update worker has merged them
        self._signals: tuple[tuple[str, int], ...] = ()
        self._version, self._is_stopped = 0, False
        self._ranks: LearnerGroup | None = None  # of gradient workers that apply updates themselves
        self._equality: EqualityCheck | None = None  # of their parameters

    @property
    def actor_version(self) -> int:
        """Number of updates of the policy that computes here."""
        return int(getattr(self.algo, "num_updates", self._version))

    # --- the chain: rows, gradient, update

    def step(
        self, distribute_gradients: bool = False, *, env_step: int | None = None,
        listen_to: tuple[tuple[str, int], ...] = (),
    ) -> GradientResult:  # fmt: skip
        """Collect if the minibatches are used up, and compute the gradient of the next one.

        With `distribute_gradients` it is averaged over all ranks and applied on each. A remote worker returns its
        gradient; it collects until there is a minibatch. The local one keeps it in its policy, and returns
        `info["HasGradient"]` False where the rows allow no update yet. `env_step` counts the run's env steps, and
        `listen_to` has signals that may end a collection early.
        """
        self._signals = listen_to
        if env_step is not None and hasattr(self.storage, "run_env_step"):
            self.storage.run_env_step = env_step
        if not self.has_batch():
            self.get_data()
            while not self.has_batch() and self.index_worker and not self._is_stopped:
                self.get_data()
        if not self.has_batch():
            return GradientResult(None, {**self._info_of_collections(), "HasGradient": False})
        found = self.get_grads()
        if distribute_gradients:
            assert self._ranks is not None and self._equality is not None, "call join_ranks first"
            self._ranks.average(self.actor.grad_vectors(), weight=1.0 / self._ranks.world_size)
            self.apply_gradients()
            if self._equality.is_due(self.actor_version):
                self._equality.check(self.actor_version)
        return found

    def get_data(self) -> None:
        """Collect the rows of one iteration into the storage, unless updates are behind, and begin on minibatches."""
        order = self.storage.order_round() if hasattr(self.storage, "order_round") else None
        if order is None or order.rows:
            found = self.collector.step(order, listen_to=self._signals)
            self._insert(found)
            if found and hasattr(self.storage, "before_gradients"):
                self.storage.before_gradients()
        self.begin_batches()

    def begin_batches(self) -> None:
        """Begin on the minibatches that the rows in the storage allow."""
        sizes = [getattr(self.algo, name, 1) for name in ("num_mini_batch", "mini_batch_size", "num_epochs")]
        self._batches = iter(self.storage.generate_batches(*sizes))

    def _insert(self, found: Sequence[Any]) -> None:
        for data, info in found:
            self.storage.insert_data_slice(unpack_rows(data).columns if isinstance(data, bytes) else data, info)
            self._collected.append({**info, "data_age_s": time.monotonic() - info["CameS"]})

    def collect_random(self, rows: int) -> Info:
        """Collect `rows` rows of random actions into the storage; return their info, with "NumRandom"."""
        order = self.storage.order_round()._replace(rows=rows, env_step=0)
        self._insert(self.collector.collect_round(order))
        return {**self._info_of_collections(), "NumRandom": self.storage.insert_random()}

    def has_batch(self) -> bool:
        """Draw the next minibatch, unless it was drawn; return whether there is one."""
        while self._batch is None:
            found = next(self._batches, _END)
            if found is _END:
                return False
            self._batch = found  # None: a batch was learned from to its end
        self.is_between_batches = False
        return True

    def get_grads(self) -> GradientResult:
        """Compute the gradient of the minibatch that was drawn."""
        batch, self._batch = self._batch, None
        began_s = time.monotonic()
        gradients, losses = self.algo.compute_gradients(batch)
        version = self.actor_version
        info = {**self._info_of_collections(), "HasGradient": True}
        info["Time"] = {**info.get("Time", {}), "GradientCompute": time.monotonic() - began_s}
        info["ActorVersion"] = {"DataCollection": _mean_version(batch, version), "GradientCompute": version}
        if self.index_worker == 0 or self._ranks is not None:
            self._gradients = gradients
            return GradientResult(None, {**losses, **info})
        return GradientResult(
            pack_state({"gradients": gradients, "losses": dict(losses)}, compress=self.compress_grads_to_send), info
        )

    def apply_gradients(self, gradients: State | None = None, info: Info | None = None) -> None:
        """Take a step with a gradient, by default the one computed here last; `info` is what was reported of it."""
        if hasattr(self.algo, "learning_storage"):
            self.algo.apply_gradients(gradients, info)
        else:
            self.algo.apply_gradients(self._gradients if gradients is None else gradients)
        self._version += 1
        self._batch = next(self._batches, None)  # of the same batch: None follows its last one
        self.is_between_batches = self._batch is None

    def _info_of_collections(self) -> Info:
        """Return the mean of what was reported of collections since the last call, and the workers that failed."""
        collected, self._collected = self._collected, []
        info = {name: value for name, value in merge_infos(collected).items() if name in _REPORTED}
        if self.index_worker:
            failures = self.c_workers.log.rows[self._num_reported :]
            self._num_reported += len(failures)
            info |= {"Collected": collected, "Failures": failures}
        return info

    def count_remote(self, info: Info) -> None:
        """Count the collections and failures that another gradient worker reported, and remove them from its info."""
        collected, failures = info.pop("Collected", ()), info.pop("Failures", ())
        if hasattr(self.storage, "count_remote"):
            self._statistics = self.storage.count_remote(collected)
        for row in failures:
            self.c_workers.log.note(row.worker, how=row.how, detail=row.detail, rows_lost=row.rows_lost, role=row.role)

    # --- weights

    def get_weights(self) -> State:
        """Return what other gradient workers compute with: {"version", "weights"}."""
        own = getattr(self.actor, "grad_state", None)
        weights = _arrays(self.actor.state_dict()) if own is None else pack_state(own())
        return {"version": self.actor_version, "weights": weights, "statistics": self._statistics}

    def set_weights(self, actor_weights: State) -> None:
        """Take over what `get_weights` of another gradient worker returned; its collectors get it before they act."""
        version, weights = actor_weights["version"], actor_weights["weights"]
        if isinstance(weights, np.ndarray):
            self.actor.load_grad_state(unpack_state(weights))
            self.algo.num_updates = version
        else:
            self.c_workers.local_worker().set_weights({"version": version, "weights": weights})
        self._version, self._statistics = version, actor_weights.get("statistics", {})

    def _weights_of_collectors(self) -> tuple[int, Callable[[], object]] | None:
        """Return (version, function that makes the weights of collectors); None where they act with this policy."""
        if self.c_workers.shares_actor:
            return None
        version, acting = self.actor_version, getattr(self.algo, "acting_weights", None)
        if acting is not None:
            return version, partial(acting, version, self._statistics)
        return version, lambda: {"version": version, "weights": _arrays(self.actor.state_dict())}

    # --- decentralised updates

    def ready(self) -> Info:
        """Return where the worker runs, and a port that is free there."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return {**super().ready(), "port": int(probe.getsockname()[1])}

    def join_ranks(self, host: str, port: int, rank: int, world_size: int, timeout_s: float) -> None:
        """Join the other gradient workers at the first rank's address. Raises CommError if they do not join in time."""
        place = dict(RANK=rank, WORLD_SIZE=world_size, MASTER_ADDR=host, MASTER_PORT=port)
        place |= dict(LOCAL_RANK=0, LOCAL_WORLD_SIZE=1)  # a worker sees only its own GPUs
        os.environ.update({name: str(value) for name, value in place.items()})
        self._ranks = LearnerGroup.from_environment(timeout_s=timeout_s, join_s=timeout_s)
        self._equality = EqualityCheck(self._ranks, self.actor)

    def learned_state(self) -> tuple[Json, Array]:
        """Return all that was learned, the optimizer's state included."""
        described, flat = pack_learn_state(self.actor.learn_mode.state_dict())
        return described, pack_state(flat)

    def load_learned_state(self, state: tuple[Json, Array], version: int) -> None:
        """Go on from what `learned_state` of another worker returned."""
        self.actor.learn_mode.load_state_dict(restored(state[0], unpack_state(state[1])))
        self.algo.num_updates = self._version = version

    # --- changes

    def stop_collecting(self, round_id: int, keyword: str = "sync") -> None:
        """Stop collections of round `round_id`, and of those before it, that listen to `keyword`."""
        self.c_workers.control("stop_collecting", round_id, keyword)

    def _update(self, part: str, name: str, value: object) -> bool:
        return self.c_workers.call_everywhere(f"update_{part}_parameter", name, value)

    def replace_agent_component(self, component_name: str, new_component_factory: Factory) -> bool:
        """Replace a part of the workers that collect by what a factory makes; return False if it cannot be."""
        if self.c_workers.num_workers:
            self.c_workers.broadcast("replace_agent_component", component_name, new_component_factory)
            return True
        if getattr(self.algo, "keeps_parts", False) and not component_name.startswith(("envs_", "TrainEnv", "TestEnv")):
            logger.warning("'%s' is what the run learns with: it stays as it is.", component_name)
            return False
        return bool(self.c_workers.serving.replace_agent_component(component_name, new_component_factory))

    def save_model(self, fname: str) -> None:
        """Write a checkpoint of the learner under this name, whole or not at all."""
        self.algo.save_model(fname)

    def stop(self) -> None:
        """End the collectors and leave the ranks; may be called again."""
        self._is_stopped = True
        if self._ranks is not None:
            self._ranks.close()
        self.collector.stop()
        self.c_workers.stop()
        if hasattr(self.storage, "close"):
            self.storage.close()


class GWorkerSet(WorkerSet):
    """Set of the local GWorker, which applies updates, and `num_workers` remote ones with collectors of their own.

    `local_params` replace parameters of the local one. The keywords behind are GWorker's in `worker_options`, and
    WorkerSet's. Source: PyTorchRL's GWorkerSet.
    """

    def __init__(
        self, num_workers: int, index_parent: int, local_device: str | None, col_execution: str,
        col_communication: str, col_workers_factory: Factory, col_fraction_workers: float = 1.0,
        grad_worker_resources: Config | None = None, compress_grads_to_send: bool = False,
        initial_weights: object = None, *, local_params: Config | None = None, worker_options: Config | None = None,
        worker_class: type[GWorker] = GWorker, **settings: Any,  # Any: of WorkerSet
    ) -> None:  # fmt: skip
        self.index_parent = index_parent
        device = "cuda" if float((grad_worker_resources or {}).get("num_gpus", 0)) > 0 else None
        params = dict(
            col_workers_factory=col_workers_factory, col_communication=col_communication,
            compress_grads_to_send=compress_grads_to_send, col_execution=col_execution,
            col_fraction_workers=col_fraction_workers, initial_weights=initial_weights, device=device,
            **(worker_options or {}),
        )  # fmt: skip
        local: dict[str, Any] = {"device": local_device, **(local_params or {})}
        each = getattr(col_workers_factory, "need", None)  # of the collectors of one gradient worker
        if num_workers:  # the local one has no collectors
            local |= dict(col_communication="synchronous", col_execution="Central", col_fraction_workers=1.0)
        super().__init__(
            worker_class, params, num_workers=num_workers, local_params=local, remote_config=grad_worker_resources,
            kind="gradient", also_needs=[] if each is None else [replace(each, number=num_workers * each.number)],
            **settings,
        )  # fmt: skip

    def _take_back(self, worker: RemoteWorker, info: Any) -> None:
        super()._take_back(worker, info)
        logger.warning("%s was restarted: its storage is empty, and the rows of its collectors are lost", worker.name)

    @classmethod
    def create_factory(cls, num_workers: int, **settings: Any) -> Callable[[str | None, int], GWorkerSet]:
        """Return a function of (device, index of the parent) that makes such sets."""
        return lambda device, index: cls(num_workers, index_parent=index, local_device=device, **settings)


def _fetched(weights: Any) -> Any:  # Any: weights, or a reference of Ray's
    """Return weights that were given by a reference of Ray's."""
    if type(weights).__name__ != "ObjectRef":
        return weights
    from ding_like.comm.ray.actors import check_cluster

    return check_cluster().get(weights, timeout=60.0)


def _are_met(*rules: StopRule) -> bool:
    return all(rule() for rule in rules)


def merge_infos(infos: Sequence[Info]) -> Info:
    """Return the mean of infos by name, in nested mappings too; numbers of samples and env steps are summed."""
    merged: Info = {}
    for name in dict.fromkeys(name for info in infos for name in info):
        values = [info[name] for info in infos if name in info]
        if isinstance(values[0], Mapping):
            merged[name] = merge_infos(values)
        elif name in ("NumberSamples", "EnvSteps"):
            merged[name] = sum(values)
        elif isinstance(values[0], bool) or not hasattr(values[0], "__truediv__"):
            merged[name] = values[-1]
        else:
            known = [value for value in values if getattr(value, "ndim", 0) or value == value]  # NaN: no episode yet
            merged[name] = sum(known) / len(known) if known and not getattr(values[0], "ndim", 0) else values[-1]
    return merged


def _mean_version(batch: Any, version: int) -> float:
    """Return the mean version of the weights that collected a batch; `version` where its rows have none."""
    columns = getattr(batch, "columns", batch if isinstance(batch, Mapping) else {})
    collected = columns.get("policy_version", ())
    return float(np.add.reduce(collected) / len(collected)) if len(collected) else float(version)


def _arrays(state: Mapping[str, Any]) -> State:
    return {name: value.detach().cpu().numpy() if hasattr(value, "detach") else value for name, value in state.items()}
