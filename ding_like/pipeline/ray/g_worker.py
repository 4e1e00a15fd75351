"""Worker that computes gradients: it has collectors, a storage of their rows, and a policy."""

from __future__ import annotations

import logging
import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ding_like.comm.learner_group import LearnerGroup
from ding_like.comm.ray.packing import pack_state, unpack_rows, unpack_state
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.ray.collector_thread import CollectorThread
from ding_like.pipeline.ray.worker_set import (
    COMMUNICATION,
    EXECUTION,
    RemoteWorker,
    Worker,
    WorkerSet,
    check_fraction,
    check_word,
)
from ding_like.policy import Policy
from ding_like.types import Array

logger = logging.getLogger(__name__)

COMPARE_EVERY = 1_000  # updates between two comparisons of the ranks' parameters
_END = object()  # of minibatches

# (device, initial weights, index of the parent) -> CWorkerSet
CWorkersFactory = Callable[[Any, Any, int], Any]


class GradientResult(NamedTuple):
    """Gradient of a minibatch, None where it is in the worker's policy, and what is known of it and its rows."""

    gradients: Array | None
    info: dict[str, Any]  # numbers in nested mappings, and "Collected": infos of the collections before it


class GWorker(Worker):
    """Worker that collects rows, computes gradients of minibatches of them, and applies gradients.

    It has the collectors that `col_workers_factory(device, initial_weights, index_worker)` makes; their local worker's
    `actor` and `algo` are its own. The local GWorker of a scheme applies all updates. Source: PyTorchRL's GWorker.
    """

    def __init__(
        self, index_worker: int, col_workers_factory: CWorkersFactory, col_communication: str = "synchronous",
        compress_grads_to_send: bool = False, col_execution: str = "Central", col_fraction_workers: float = 1.0,
        initial_weights: Any = None, device: str | None = None, *, broadcast_interval: int = 1,
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
            if col_execution == "Central" and self.c_workers.has_remote:
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
        self._collected: list[dict[str, Any]] = []  # infos of collections that were not reported yet
        self._failures_told = 0
        self._statistics: Mapping[str, Any] = {}  # of the envs' wrappers, as the update worker has merged them
        self._signals: tuple[tuple[str, int], ...] = ()
        self._version, self._is_stopped = 0, False
        self._ranks: LearnerGroup | None = None  # of gradient workers that apply updates themselves

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
            assert self._ranks is not None, "call join_ranks first"
            self._ranks.average(self.actor.grad_vectors(), weight=1.0 / self._ranks.world_size)
            self.apply_gradients()
            if self.actor_version % COMPARE_EVERY == 0:
                compare_parameters(self._ranks, self.actor, self.actor_version)
            return GradientResult(None, found.info)
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
        algo = self.algo
        sizes = [getattr(algo, name, 1) for name in ("num_mini_batch", "mini_batch_size", "num_epochs")]
        self._batches = iter(self.storage.generate_batches(*sizes))

    def _insert(self, found: Sequence[Any]) -> None:
        for data, info in found:
            self.storage.insert_data_slice(unpack_rows(data).columns if isinstance(data, bytes) else data, info)
            self._collected.append({**info, "data_age_s": time.monotonic() - info["CameS"]})

    def collect_random(self, rows: int) -> dict[str, Any]:
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
        info = {**losses, **self._info_of_collections(), "HasGradient": True}
        info["Time"] = {**info.get("Time", {}), "GradientCompute": time.monotonic() - began_s}
        info["ActorVersion"] = {"DataCollection": _mean_version(batch, version), "GradientCompute": version}
        if self.index_worker == 0 or self._ranks is not None:
            self._gradients = gradients
            return GradientResult(None, info)
        packed = pack_state({"gradients": gradients, "losses": dict(losses)}, compress=self.compress_grads_to_send)
        return GradientResult(packed, {name: each for name, each in info.items() if name not in losses})

    def apply_gradients(self, gradients: Any = None, info: Mapping[str, Any] | None = None) -> None:
        """Take a step with a gradient, by default the one computed here last; `info` is what was reported of it."""
        if hasattr(self.algo, "learning_storage"):
            self.algo.apply_gradients(gradients, info)
        else:
            self.algo.apply_gradients(self._gradients if gradients is None else gradients)
        self._version += 1
        self._batch = next(self._batches, None)  # of the same batch: None follows its last one
        self.is_between_batches = self._batch is None

    def _info_of_collections(self) -> dict[str, Any]:
        """Return the mean of what was reported of collections since the last call, and the workers that failed."""
        collected, self._collected = self._collected, []
        info: dict[str, Any] = merge_infos(collected) if collected else {}
        rows = self.c_workers.log.rows if self.index_worker else []
        failures, self._failures_told = rows[self._failures_told :], len(rows)
        kept = ("Episodes", "Time", "NumberSamples", "EnvSteps", "data_age_s")
        found = {name: info[name] for name in kept if name in info}
        return found if self.index_worker == 0 else {**found, "Collected": collected, "Failures": failures}

    def note_remote(self, info: dict[str, Any]) -> None:
        """Count the collections and failures that another gradient worker reported, and remove them from its info."""
        collected, failures = info.pop("Collected", ()), info.pop("Failures", ())
        if hasattr(self.storage, "note_remote"):
            self._statistics = self.storage.note_remote(collected)
        for row in failures:
            self.c_workers.log.note(row.worker, how=row.how, detail=row.detail, rows_lost=row.rows_lost, role=row.role)

    # --- weights

    def get_weights(self) -> dict[str, Any]:
        """Return what other gradient workers compute with: {"version", "weights"}."""
        own = getattr(self.algo, "gradient_weights", None)
        weights = _arrays(self.actor.state_dict()) if own is None else pack_state(own())
        return {"version": self.actor_version, "weights": weights, "statistics": self._statistics}

    def set_weights(self, actor_weights: Mapping[str, Any]) -> None:
        """Take over what `get_weights` of another gradient worker returned; its collectors get it before they act."""
        if isinstance(actor_weights["weights"], np.ndarray):
            self.algo.load_gradient_weights(unpack_state(actor_weights["weights"]))
            self.algo.num_updates = actor_weights["version"]
        else:
            self.c_workers.local_worker().set_weights(
                {"version": actor_weights["version"], "weights": actor_weights["weights"]}
            )
        self._version, self._statistics = actor_weights["version"], actor_weights.get("statistics", {})

    def _weights_of_collectors(self) -> tuple[int, Any] | None:
        """Return (version, what makes the weights of the collectors); None where they act with this very policy."""
        if self.c_workers.shares_actor:
            return None
        version, statistics = self.actor_version, self._statistics
        acting = getattr(self.algo, "acting_weights", None)
        if acting is not None:
            return version, partial(acting, version, statistics)
        return version, lambda: {"version": version, "weights": _arrays(self.actor.state_dict())}

    # --- decentralised updates

    def ready(self) -> Mapping[str, Any]:
        """Return where the worker runs, and a port that is free there."""
        return {**super().ready(), "port": free_port()}

    def join_ranks(self, host: str, port: int, rank: int, world_size: int, timeout_s: float) -> None:
        """Join the other gradient workers at the first rank's address. Raises CommError if they do not come in time."""
        place = dict(RANK=rank, WORLD_SIZE=world_size, MASTER_ADDR=host, MASTER_PORT=port)
        place |= dict(LOCAL_RANK=0, LOCAL_WORLD_SIZE=1)  # a worker sees only its own GPUs
        os.environ.update({name: str(value) for name, value in place.items()})
        self._ranks = LearnerGroup.from_environment(timeout_s=timeout_s, join_s=timeout_s)

    def learned_state(self) -> Any:  # Any: of JSON, and packed bytes
        """Return all that was learned, the optimizer's state included."""
        return self.algo.learned_state()

    def load_learned_state(self, state: Any, version: int) -> None:
        """Go on from what `learned_state` of another worker returned."""
        self.algo.load_learned_state(state)
        self.algo.num_updates = self._version = version

    # --- changes

    def stop_collecting(self, round_id: int, keyword: str = "sync") -> None:
        """Stop collections of round `round_id`, and of those before it, that listen to `keyword`."""
        self.c_workers.control("stop_collecting", round_id, keyword)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `algo`, here and before the next call of each collector; return whether there is one."""
        return self.c_workers.call_everywhere("update_algorithm_parameter", parameter_name, new_parameter_value)

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `storage`, here and before the next call of each collector."""
        return self.c_workers.call_everywhere("update_storage_parameter", parameter_name, new_parameter_value)

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
        """Replace a part of the workers that collect by what a factory makes; return False if it cannot be."""
        if self.c_workers.has_remote:
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
        col_communication: str, col_workers_factory: CWorkersFactory, col_fraction_workers: float = 1.0,
        grad_worker_resources: Mapping[str, Any] | None = None, compress_grads_to_send: bool = False,
        initial_weights: Any = None, *, local_params: Mapping[str, Any] | None = None,
        worker_options: Mapping[str, Any] | None = None, worker_class: type[GWorker] = GWorker,
        **settings: Any,  # Any: of WorkerSet
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
    def create_factory(cls, num_workers: int, **settings: Any) -> Callable[[Any, int], GWorkerSet]:
        """Return a function of (device, index of the parent) that makes such sets."""
        return lambda device, index: cls(num_workers, index_parent=index, local_device=device, **settings)


def compare_parameters(ranks: LearnerGroup, policy: Policy, num_updates: int) -> None:
    """Raise TrainingError if the parameters of the ranks differ in a bit."""
    sums = ranks.all_gather_bytes(checksum(policy).to_bytes(4, "big"))
    if len(set(sums)) > 1:
        differing = [rank for rank, each in enumerate(sums) if each != sums[0]]
        raise TrainingError(
            f"after update {num_updates:,} the ranks {differing} have other parameters than rank 0: resume from an "
            "earlier point, with the same libraries and kind of processor on all machines."
        )


def checksum(policy: Policy) -> int:
    """Return the crc32 of a policy's parameters."""
    total = 0
    for _, tensor in sorted(policy.get_attribute("model").state_dict().items()):
        total = zlib.crc32(tensor.detach().cpu().contiguous().numpy().data, total)
    return total


def free_port() -> int:
    """Return a port that is free on this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def merge_infos(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of infos by name, in nested mappings too; numbers of samples and env steps are summed."""
    merged: dict[str, Any] = {}
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
    """Return the mean version of the weights that collected a batch; `version` where its rows do not say."""
    columns = getattr(batch, "columns", batch if isinstance(batch, Mapping) else {})
    collected = columns.get("policy_version")
    return (
        float(version) if collected is None or not len(collected) else float(np.add.reduce(collected) / len(collected))
    )


def _arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.detach().cpu().numpy() if hasattr(value, "detach") else value for name, value in state.items()}
