"""Workers that compute gradients of minibatches, and the worker that updates the policy with them."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ding_like.comm.learner_group import LearnerGroup
from ding_like.comm.ray.packing import pack_state, unpack_rows, unpack_state
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.learners.synced import EqualityCheck
from ding_like.pipeline.ray.c_worker import CollectorThread
from ding_like.pipeline.ray.plain import mean_gradients, weaken_gradients
from ding_like.pipeline.ray.settings import GradSettings
from ding_like.pipeline.ray.worker_set import (
    COMMUNICATION,
    EXECUTION,
    LOOK_S,
    ProducerThread,
    RemoteWorker,
    Worker,
    WorkerSet,
    check_fraction,
    check_word,
)
from ding_like.types import Array, Config, Factory, Info, State

logger = logging.getLogger(__name__)

_SETTLE_S = 600.0  # for the batch under way
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
        initial_weights: object = None, device: str | None = None, *, broadcast_interval: int = 1,
        max_queue_size: int = 100, segment_rows: int | None = None, least_rows: int = 1,
        max_policy_lag: int | None = None,
    ) -> None:  # fmt: skip
        """Make the collectors. Raises ConfigError for words that do not fit them."""
        super().__init__(index_worker)
        self.col_communication, self.col_execution = col_communication, col_execution
        self.col_fraction_workers, self.compress_grads_to_send = col_fraction_workers, compress_grads_to_send
        check_word("col_communication", col_communication, COMMUNICATION)
        check_word("col_execution", col_execution, EXECUTION)
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
            get_weights=self._weights_of_collectors, broadcast_interval=broadcast_interval,
            max_queue_size=max_queue_size, segment_rows=segment_rows, least_rows=least_rows,
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
            if found:
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
        own = getattr(self.algo, "gradient_weights", None)
        weights = _arrays(self.actor.state_dict()) if own is None else pack_state(own())
        return {"version": self.actor_version, "weights": weights, "statistics": self._statistics}

    def set_weights(self, actor_weights: State) -> None:
        """Take over what `get_weights` of another gradient worker returned; its collectors get it before they act."""
        version, weights = actor_weights["version"], actor_weights["weights"]
        if isinstance(weights, np.ndarray):
            self.algo.load_gradient_weights(unpack_state(weights))
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
        """Join the other gradient workers at the first rank's address. Raises CommError if they do not come in time."""
        place = dict(RANK=rank, WORLD_SIZE=world_size, MASTER_ADDR=host, MASTER_PORT=port)
        place |= dict(LOCAL_RANK=0, LOCAL_WORLD_SIZE=1)  # a worker sees only its own GPUs
        os.environ.update({name: str(value) for name, value in place.items()})
        self._ranks = LearnerGroup.from_environment(timeout_s=timeout_s, join_s=timeout_s)
        self._equality = EqualityCheck(self._ranks, self.actor)

    def learned_state(self) -> object:
        """Return all that was learned, the optimizer's state included."""
        return self.algo.learned_state()

    def load_learned_state(self, state: object, version: int) -> None:
        """Go on from what `learned_state` of another worker returned."""
        self.algo.load_learned_state(state)
        self.algo.num_updates = self._version = version

    # --- changes

    def stop_collecting(self, round_id: int, keyword: str = "sync") -> None:
        """Stop collections of round `round_id`, and of those before it, that listen to `keyword`."""
        self.c_workers.control("stop_collecting", round_id, keyword)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> bool:
        """Set an attribute of `algo`, here and before the next call of each collector; return whether there is one."""
        return self.c_workers.call_everywhere("update_algorithm_parameter", parameter_name, new_parameter_value)

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: object) -> bool:
        """Set an attribute of `storage`, here and before the next call of each collector."""
        return self.c_workers.call_everywhere("update_storage_parameter", parameter_name, new_parameter_value)

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


class UpdaterThread(ProducerThread):
    """Thread, or synchronous stepper, that turns gradients into updates of the local gradient worker.

    Asynchronous central updates run in this thread, which is one update ahead of the caller. The info of an update has
    `ActorVersion`, `PolicyLag` (updates between the weights that collected a minibatch and those that its gradient was
    computed with) and `GradientAsynchrony` (updates between those and the ones it was applied to).
    Source: PyTorchRL's UpdaterThread.
    """

    def __init__(
        self, local_worker: GWorker, remote_workers: Sequence[RemoteWorker], decentralized_update_execution: bool,
        col_fraction_workers: float = 1.0, grad_execution: str = "Central", grad_communication: str = "synchronous", *,
        workers: GWorkerSet | None = None, settings: GradSettings | None = None,
    ) -> None:  # fmt: skip
        """Start the thread if it is to update by itself; it waits for the first `step`."""
        super().__init__("updater thread")
        self.local_worker, self.remote_workers, self.num_workers = local_worker, remote_workers, len(remote_workers)
        self.decentralized_update_execution = decentralized_update_execution
        self.col_fraction_workers = col_fraction_workers
        self.grad_execution, self.grad_communication = grad_execution, grad_communication
        self.settings = settings or GradSettings()
        self.stale_gradients = 0
        self._workers, self._round_id, self._has_begun = workers, 0, False
        self._updates_itself = grad_execution == "Central" and grad_communication == "asynchronous"
        self._changed, self._is_held, self._is_idle = threading.Condition(), True, False
        if self._updates_itself:
            self.start()

    def step(self) -> Info:
        """Run one update and return its info: in the caller's thread, or the next one of this thread.

        Raises what the update raised, and CommError once the thread has ended.
        """
        if not self._updates_itself:
            return self._update()
        self._hold(False)
        while (found := self.next_result()) is None:
            pass
        self._hold(False)  # there is room for another one
        return dict(found)

    def produce(self) -> Info | None:
        """Return the info of an update; None after a second in which there was none to make."""
        with self._changed:
            # A batch under way is learned from to its end.
            self._is_idle = self.local_worker.is_between_batches if self._is_held else self.outqueue.qsize() > 0
            if self._is_idle:
                self._changed.notify_all()
                self._changed.wait(LOOK_S)
                return None
        return self._update()

    def _hold(self, is_held: bool) -> None:
        with self._changed:
            self._is_held, self._is_idle = is_held, False
            self._changed.notify_all()

    def settle(self, *, timeout_s: float = _SETTLE_S) -> None:
        """Wait until the batch under way is learned from, and hold the thread until the next `step`."""
        if not self._updates_itself:
            return
        end_s = time.monotonic() + timeout_s
        self._hold(True)
        with self._changed:
            while self.is_alive() and not self._is_idle and time.monotonic() < end_s:
                self._changed.wait(LOOK_S)
            if self.is_alive() and not self._is_idle:
                raise CommError(f"the update under way is not over after {timeout_s:g} s: nothing can be saved now.")

    def stop(self, *, timeout_s: float = 4.0) -> bool:
        """End the thread after the update under way; return whether it has ended in time."""
        self.stopped = True
        self._hold(True)
        return super().stop(timeout_s=timeout_s)

    # --- the four patterns

    def _update(self) -> Info:
        local = self.local_worker
        if self._workers is not None and not self._has_begun:
            self._has_begun = True
            self._workers.broadcast("set_weights", local.get_weights())
        if self.grad_execution == "Central" or self._workers is None:
            info = local.step().info
            if info["HasGradient"]:
                local.apply_gradients()
        elif self.decentralized_update_execution:
            info = self._update_ranks(self._workers)
        elif self.grad_communication == "synchronous":
            info = self._update_by_mean(self._workers)
        else:
            info = self._update_by_first(self._workers)
        return self._with_lags(info)

    def _update_ranks(self, workers: GWorkerSet) -> Info:
        """Have every rank apply the mean of all gradients. Raises CommError if one is lost: the others cannot go on."""
        replies = workers.call("step", True, env_step=self._env_step)
        if len(replies) < self.num_workers and not workers.is_leaving():
            raise CommError(
                "decentralised updates need every gradient worker, and one was lost. Go on with ding --resume; updates "
                "that one process applies (update.decentralized=False) survive lost workers."
            )
        info = self._merged([reply.value.info for reply in replies])
        if replies:
            self.local_worker.algo.count_update(info)
        return info

    def _update_by_mean(self, workers: GWorkerSet) -> Info:
        """Apply the mean of the gradients of the workers that are present, and send all of them the weights."""
        self._round_id += 1
        signal = "sync", self._round_id
        replies = workers.call(
            "step", env_step=self._env_step, listen_to=(signal,), quorum=self.col_fraction_workers,
            on_quorum=lambda: workers.control("stop_collecting", signal[1], signal[0]),
            least=self.settings.min_workers, timeout_s=self.settings.round_timeout_s,
        )  # fmt: skip
        if not replies:
            return {"HasGradient": False}
        local, found = self.local_worker, [_unpacked(reply.value) for reply in replies]
        info = self._merged([each for _, each in found])
        mean = getattr(local.algo, "mean_gradients", mean_gradients)
        local.apply_gradients(mean([gradients for gradients, _ in found]), info)
        workers.broadcast("set_weights", local.get_weights())
        return {**info, "GradientWorkers": len(replies)}

    def _update_by_first(self, workers: GWorkerSet) -> Info:
        """Apply the gradient that comes first, and send its worker, alone, the weights."""
        reply = workers.next_ready("step", env_step=self._env_step, timeout_s=workers.policy.step_timeout_s)
        if reply is None:
            return {"HasGradient": False}
        local, (gradients, info) = self.local_worker, _unpacked(reply.value)
        local.count_remote(info)
        age, limit = local.actor_version - info["ActorVersion"]["GradientCompute"], self.settings.max_staleness
        is_stale = limit is not None and age > limit
        self.stale_gradients += is_stale
        if is_stale and self.settings.staleness == "drop":
            info["HasGradient"] = False
        else:
            if is_stale:
                weaken = getattr(local.algo, "weaken_gradients", weaken_gradients)
                gradients = weaken(gradients, 1.0 / (1.0 + age))
            info["ActorVersion"] = {**info["ActorVersion"], "ActorUpdate": local.actor_version}
            local.apply_gradients(gradients, info)
        workers.send(reply.worker, "set_weights", local.get_weights())
        return {**info, "StaleGradients": self.stale_gradients}

    @property
    def _env_step(self) -> int:
        return int(getattr(self.local_worker.storage, "env_step", 0))

    def _merged(self, infos: Sequence[Info]) -> Info:
        for info in infos:
            self.local_worker.count_remote(info)
        return merge_infos(infos)

    def _with_lags(self, info: Info) -> Info:
        versions = dict(info.get("ActorVersion", {}))
        if not info.get("HasGradient") or "GradientCompute" not in versions:
            return {**info, "ActorVersion": {"ActorUpdate": self.local_worker.actor_version}}
        versions.setdefault("ActorUpdate", versions["GradientCompute"])
        lag = versions["GradientCompute"] - versions["DataCollection"]
        asynchrony = versions["ActorUpdate"] - versions["GradientCompute"]
        return {**info, "ActorVersion": versions, "PolicyLag": lag, "GradientAsynchrony": asynchrony}


class UWorker(Worker):
    """Worker that updates the policy with gradients of the workers that `grad_workers_factory(device, index)` makes.

    `grad_execution` "Central": the local gradient worker computes, "Parallel": the remote ones do. Raises ConfigError
    for words that are unknown or exclude each other. Source: PyTorchRL's UWorker.
    """

    def __init__(
        self, grad_workers_factory: Callable[[str | None, int], GWorkerSet], index_worker: int = 0,
        col_fraction_workers: float = 1.0, grad_execution: str = "Central", grad_communication: str = "synchronous",
        decentralized_update_execution: bool = False, local_device: str | None = None, *,
        settings: GradSettings | None = None,
    ) -> None:  # fmt: skip
        super().__init__(index_worker)
        self.env_step = 0  # of the updates that `step` returned
        self.grad_execution, self.grad_communication = grad_execution, grad_communication
        check_word("grad_execution", grad_execution, EXECUTION)
        check_word("grad_communication", grad_communication, COMMUNICATION)
        check_fraction(col_fraction_workers)
        if decentralized_update_execution and (grad_execution == "Central" or grad_communication == "asynchronous"):
            raise ConfigError(
                "decentralised updates are made by all gradient workers together: they need grad_execution='Parallel' "
                "and grad_communication='synchronous'."
            )
        self.grad_workers = grad_workers_factory(local_device, index_worker)
        self.local_worker: GWorker = self.grad_workers.local_worker()
        try:
            if grad_execution != "Central" and not self.num_workers:
                raise ConfigError("gradients in parallel need workers: give one or more, or grad_execution='Central'.")
            if grad_execution == "Central" and self.num_workers:
                raise ConfigError(
                    f"grad_execution is 'Central', but there are {self.num_workers} gradient workers: give 'Parallel'."
                )
            if decentralized_update_execution:
                self._join_ranks()
            self.updater = UpdaterThread(
                self.local_worker, self.remote_workers, decentralized_update_execution, col_fraction_workers,
                grad_execution, grad_communication, workers=self.grad_workers if self.num_workers else None,
                settings=settings,
            )  # fmt: skip
        except BaseException:
            self.grad_workers.stop()
            raise

    def _join_ranks(self) -> None:
        """Have the gradient workers form a process group, and go on from what the local worker has learned."""
        workers, local = self.grad_workers, self.local_worker
        places = [worker.info for worker in workers.remote_workers()]
        host = "127.0.0.1" if len({place["node"] for place in places}) == 1 else places[0]["node"]
        limit = {"timeout_s": workers.policy.start_timeout_s}
        workers.call(
            "join_ranks",
            host,
            places[0]["port"],
            each=lambda rank, number: {"rank": rank, "world_size": number, **limit},
        )
        workers.call("load_learned_state", local.learned_state(), local.actor_version)
        local.algo.fetch_before_saving(self.settle)

    @property
    def remote_workers(self) -> list[RemoteWorker]:
        """Remote gradient workers."""
        return self.grad_workers.remote_workers()

    @property
    def num_workers(self) -> int:
        """Number of remote gradient workers."""
        return self.grad_workers.num_workers

    @property
    def actor_version(self) -> int:
        """Number of updates of the actor, those before a resumption included."""
        return self.local_worker.actor_version

    def step(self) -> Info:
        """Run one update and return its info; see `UpdaterThread.step`."""
        info = self.updater.step()
        self.env_step += int(info.get("EnvSteps", 0))
        return info

    @property
    def is_stepped_here(self) -> bool:
        """Whether `step` collects and computes in the caller's thread, by the local gradient worker."""
        return not self.num_workers and self.grad_communication == "synchronous"

    def settle(self) -> None:
        """Wait for the update under way; until the next `step` all that was learned is in this process."""
        self.updater.settle()
        if self.updater.decentralized_update_execution:
            replies = self.grad_workers.call("learned_state", each=lambda rank, _: None if rank else {})
            if not replies:
                raise CommError("no gradient worker has returned what it has learned.")
            self.local_worker.algo.load_learned_state(replies[0].value)

    def collect_random(self, rows: int) -> int:
        """Have rows of random actions collected; return how many came."""
        if not self.num_workers:
            return int(self.local_worker.collect_random(rows)["NumRandom"])
        replies = self.grad_workers.call("collect_random", max(1, rows // self.num_workers))
        for reply in replies:
            self.local_worker.count_remote(reply.value)
        return sum(reply.value["NumRandom"] for reply in replies)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> bool:
        """Set an attribute of `algo` in every worker; "lr" sets the optimizers too. Return whether there is one."""
        self.updater.settle()
        return self.grad_workers.call_everywhere("update_algorithm_parameter", parameter_name, new_parameter_value)

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: object) -> bool:
        """Set an attribute of `storage` in every worker; return whether there is one."""
        self.updater.settle()
        return self.grad_workers.call_everywhere("update_storage_parameter", parameter_name, new_parameter_value)

    def replace_agent_component(self, component_name: str, new_component_factory: Factory) -> bool:
        """Replace a part of the workers that collect; return False if it cannot be."""
        if self.num_workers:
            self.grad_workers.broadcast("replace_agent_component", component_name, new_component_factory)
            return True
        return self.local_worker.replace_agent_component(component_name, new_component_factory)

    def save_model(self, fname: str) -> None:
        """Write a checkpoint under this name; see `GWorker.save_model`."""
        self.settle()
        self.local_worker.save_model(fname)

    def stop(self) -> None:
        """End the thread and all workers, within 10 s; may be called again."""
        self.updater.stop(timeout_s=2.0)
        self.grad_workers.stop(timeout_s=6.0)
        self.updater.stop(timeout_s=1.0)


def _unpacked(result: GradientResult) -> tuple[State, Info]:
    """Return (gradients, info) of a remote worker's result."""
    gradients, info = result
    assert gradients is not None, "a remote worker sends its gradient"
    state = unpack_state(gradients)
    return state["gradients"], {**state["losses"], **info}


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
