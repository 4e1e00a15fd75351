"""Collection: workers that act in envs of their own and return the rows, sets of them, a thread that calls them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from ding_like.comm.channels import CollectRequest, Segment
from ding_like.comm.ray.needs import Need, resources_of
from ding_like.comm.ray.packing import pack_rows
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.pipeline.collect import collector_name
from ding_like.pipeline.factories import COMPONENTS, no_envs
from ding_like.pipeline.ray.plain import PlainWeights, StepCollector, mean_test_return
from ding_like.pipeline.ray.worker_set import LOOK_S, ProducerThread, Reply, Worker, WorkerSet
from ding_like.pipeline.remote_collectors import shares
from ding_like.policy.base import device_named
from ding_like.types import Config, Factory, Info, Setting
from ding_like.worker.collector.stop_rule import StopRule, StopSignals, whole_number

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
    `envs_test` are as their factories made them; docs/ray.md says what is called on each. Source: PyTorchRL's CWorker.
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
        """Collect in these envs, from their first episodes on, in place of those before; None: nowhere."""
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
    ) -> tuple[Any, Info]:
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
    def obs(self) -> Any:
        """Newest observation of each train env [E, O...], a tensor or a dict of them; None without envs."""
        return None if self._collector is None else self._collector.obs

    @property
    def rhs(self) -> Any:
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


class CollectorThread(ProducerThread):
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


def _fetched(weights: Any) -> Any:  # Any: weights, or a reference of Ray's
    """Return weights that were given by a reference of Ray's."""
    if type(weights).__name__ != "ObjectRef":
        return weights
    from ding_like.comm.ray.actors import check_cluster

    return check_cluster().get(weights, timeout=60.0)


def _are_met(*rules: StopRule) -> bool:
    return all(rule() for rule in rules)
