"""Worker that collects, and set of such workers: it acts in envs of its own, and returns the rows to the caller."""

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
from ding_like.pipeline.ray.step_collector import PlainWeights, StepCollector, mean_test_return
from ding_like.pipeline.ray.worker_set import Worker, WorkerSet
from ding_like.policy.base import device_named
from ding_like.worker.collector.stop_rule import StopRule, StopSignals, whole_number

# What PyTorchRL gives a worker.
RESOURCES = MappingProxyType(dict(memory=5 * 2**30, num_cpus=1, num_gpus=0.2, object_store_memory=2 * 2**30))
# What a collector returns beside its rows, by name; Any: numbers, dicts of these, and a segment.
Info = dict[str, Any]


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
        self, index_worker: int, index_parent: int, algo_factory: Callable[..., Any], actor_factory: Callable[..., Any],
        storage_factory: Callable[..., Any], fraction_samples: float = 1.0, compress_data_to_send: bool = False,
        train_envs_factory: Callable[..., Any] = no_envs, test_envs_factory: Callable[..., Any] = no_envs,
        initial_weights: Any = None, device: str | torch.device | None = None,
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
        self._end: Any = None  # what steps the train envs: a RolloutWorker or a StepCollector
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
        before, self._end, self.envs_train = self._end, None, envs
        if before is not None:
            before.close()
        if envs is None:
            return
        if hasattr(self.algo, "rollout_worker"):
            self._end = self.algo.rollout_worker(
                envs, self.index_worker, self.index_parent, self._weights, self.storage
            )
        else:
            seed = 10_000 * self.index_parent + 100 * self.index_worker
            self._end = StepCollector(envs, self.algo, self.storage, self._weights, seed=seed)
        if before is not None:
            self._end.envstep = before.envstep

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
        self,
        listen_to: Iterable[str | tuple[str, int]] = (),
        data_to_cpu: bool = True,
        *,
        order: CollectRequest | None = None,
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
        segment: Segment = self._collecting().take()
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
        self, num_steps: int | None = None, listen_to: Iterable[str | tuple[str, int]] = (), *,
        order: CollectRequest | None = None,
    ) -> CollectionResult:  # fmt: skip
        """Collect `num_steps` rows, or what `order` asks for, into `storage`; open episodes continue between calls."""
        end, started = self._collecting(), time.perf_counter()
        rows = whole_number("num_steps", self.update_every if num_steps is None else num_steps)
        order = order or CollectRequest(False, rows, end.envstep, None)
        order = order._replace(rows=min(order.rows, self.storage.max_size or order.rows))
        signalled, stop = self._signals.rule(listen_to, self.iter), None
        with self._weights.in_use():
            end.random_steps = getattr(self.algo, "start_steps", 0)
            if self.fraction_samples < 1 and signalled is not None:
                least = math.ceil(self.fraction_samples * order.rows - 1e-9)  # 0.07 * 100 is a little more than 7
                stop = partial(_are_met, end.rows_rule(max(least, 1)), signalled)
            end.collect(order, stop=stop)
        self.samples_collected += end.num_collected
        return CollectionResult(time.perf_counter() - started, end.mean_return)

    def evaluate(self) -> float:
        """Return the mean return of `algo.num_test_episodes` fresh episodes in the test envs, played greedily."""
        if self.envs_test is None:
            raise ConfigError(f"worker {self.index_worker} has no test envs, or was stopped: it cannot evaluate.")
        with self._weights.in_use():
            self._num_evals += 1
            if hasattr(self.algo, "evaluate"):
                return float(self.algo.evaluate(self.envs_test, self._weights, number=self._num_evals).mean)
            return mean_test_return(self.envs_test, self.algo, int(self.algo.num_test_episodes))

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
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
        elif name == "actor" and isinstance(self._weights, PlainWeights):
            self._weights = PlainWeights(new)
        elif name == "actor":
            self._weights.use_policy(new)
            self.algo.policy = new
        if self._end is not None and isinstance(self._end, StepCollector):
            self._end.algo, self._end.storage = self.algo, self.storage
        elif self._end is not None and name in ("actor", "storage"):
            self._end.use_policy(self.actor, self.storage)
        return True

    # --- what may be called while it collects

    def set_weights(self, actor_weights: Any) -> None:
        """Take weights unless they are older: now, or before the next collection if one is under way.

        They are {"version": int, "weights": the actor's state dict}, or what a gradient worker sends. Raises CommError
        that names the first tensor which does not fit.
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
    def setting(self) -> Mapping[str, Any]:
        """Setting that the policy acted with last: exploration, say."""
        found: Mapping[str, Any] = getattr(self._end, "setting", {})
        return found

    @property
    def obs(self) -> Any:
        """Newest observation of each train env [E, O...], a tensor or a dict of them; None without envs."""
        return None if self._end is None else self._end.obs

    @property
    def rhs(self) -> Any:
        """Recurrent state of the actor by name [E, S...], empty for one without; None without train envs."""
        return None if self._end is None else self._end.recurrent_state

    @property
    def done(self) -> torch.Tensor | None:
        """Bool[E], the train envs that begin an episode next; None without any."""
        return None if self._end is None else self._end.done

    def _collecting(self) -> Any:
        if self._end is None:
            raise ConfigError(f"worker {self.index_worker} has no train envs, or was stopped: it cannot collect.")
        return self._end

    def stop(self) -> None:
        """Close the envs and what else the worker has opened; may be called again."""
        for part in (self._end, self.envs_train, self.envs_test):
            if part is not None:
                part.close()
        self._end = self.envs_train = self.envs_test = None


class CWorkerSet(WorkerSet):
    """Set of a local CWorker and `num_workers` remote ones, all of the gradient worker `index_parent`.

    In a scheme of several gradient workers (`total_parent_workers` > 0) the set of parent 0 holds parameters only. The
    local worker collects where no remote one does; with `is_apart` by a CWorker of its own, whose actor nothing else
    uses. `local_params` replace parameters of the local worker. Remote workers act on `remote_device` (None: the CPU).
    The other keywords are WorkerSet's. Source: PyTorchRL's CWorkerSet.
    """

    def __init__(
        self, num_workers: int, index_parent: int, algo_factory: Callable[..., Any], actor_factory: Callable[..., Any],
        storage_factory: Callable[..., Any], local_device: str | torch.device | None = None,
        initial_weights: Any = None, fraction_samples: float = 1.0, total_parent_workers: int = 0,
        compress_data_to_send: bool = False, train_envs_factory: Callable[..., Any] = no_envs,
        test_envs_factory: Callable[..., Any] = no_envs, worker_remote_config: Mapping[str, Any] = RESOURCES, *,
        local_params: Mapping[str, Any] | None = None, remote_device: str | None = None, is_apart: bool = False,
        worker_class: type[CWorker] = CWorker, **settings: Any,  # Any: those of WorkerSet
    ) -> None:  # fmt: skip
        holds_parameters = total_parent_workers > 0 and index_parent == 0
        params = dict(
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
        cls, num_workers: int, algo_factory: Callable[..., Any], actor_factory: Callable[..., Any],
        storage_factory: Callable[..., Any], test_envs_factory: Callable[..., Any],
        train_envs_factory: Callable[..., Any], total_parent_workers: int = 0, col_fraction_samples: float = 1.0,
        compress_data_to_send: bool = False, col_worker_resources: Mapping[str, Any] = RESOURCES, **settings: Any,
    ) -> Callable[[Any, Any, int], CWorkerSet]:  # fmt: skip
        """Return f(device, initial_weights, index_parent), which makes such a set; `settings` are the constructor's."""
        resources = dict(col_worker_resources)

        def make(device: Any, initial_weights: Any, index_parent: int) -> CWorkerSet:
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


def _fetched(weights: Any) -> Any:
    """Return weights that were given by a reference of Ray's."""
    if type(weights).__name__ != "ObjectRef":
        return weights
    from ding_like.comm.ray.actors import check_cluster

    return check_cluster().get(weights, timeout=60.0)


def _are_met(*rules: StopRule) -> bool:
    return all(rule() for rule in rules)
