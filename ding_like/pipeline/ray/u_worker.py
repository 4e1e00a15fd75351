"""Worker that updates the policy, one gradient a step, and the thread that may do so ahead of the caller."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ding_like.comm.ray.packing import unpack_state
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.ray.g_worker import GradientResult, GWorker, GWorkerSet, merge_infos
from ding_like.pipeline.ray.settings import GradSettings
from ding_like.pipeline.ray.worker_set import COMMUNICATION, EXECUTION, RemoteWorker, Worker, check_fraction, check_word

logger = logging.getLogger(__name__)

_LOOK_S = 1.0  # between two looks at whether the thread lives
_SETTLE_S = 600.0  # for the batch under way
_STOP_S = 4.0


class UpdaterThread(threading.Thread):
    """Thread, or synchronous stepper, that turns gradients into updates of the local gradient worker.

    Asynchronous central updates run in this thread, which is ahead of the caller by what `outqueue` holds. The info of
    an update has `ActorVersion`, `PolicyLag` (updates between the weights that collected a minibatch and those that its
    gradient was computed with) and `GradientAsynchrony` (updates between those and the ones it was applied to).
    Source: PyTorchRL's UpdaterThread.
    """

    def __init__(
        self, local_worker: GWorker, remote_workers: Sequence[RemoteWorker], decentralized_update_execution: bool,
        col_fraction_workers: float = 1.0, grad_execution: str = "Central", grad_communication: str = "synchronous", *,
        workers: GWorkerSet | None = None, settings: GradSettings | None = None,
    ) -> None:  # fmt: skip
        """Start the thread if it is to update by itself; it waits for the first `step`."""
        super().__init__(name="updater", daemon=True)
        self.local_worker, self.remote_workers, self.num_workers = local_worker, remote_workers, len(remote_workers)
        self.decentralized_update_execution = decentralized_update_execution
        self.col_fraction_workers = col_fraction_workers
        self.grad_execution, self.grad_communication = grad_execution, grad_communication
        self.settings = settings or GradSettings()
        self.stopped, self.stale_gradients = False, 0
        self.outqueue: queue.Queue[Mapping[str, Any] | BaseException] = queue.Queue(1)
        self._workers, self._round_id, self._has_begun = workers, 0, False
        self._updates_itself = grad_execution == "Central" and grad_communication == "asynchronous"
        self._changed, self._is_held, self._is_idle = threading.Condition(), True, False
        self._settled: list[Mapping[str, Any] | BaseException] = []  # taken out of the queue while it was settled
        if self._updates_itself:
            self.start()

    def step(self) -> Mapping[str, Any]:
        """Run one update and return its info: in the caller's thread, or the next one of this thread.

        Raises what the update raised, and CommError once the thread has ended.
        """
        if not self._updates_itself:
            return self._update()
        with self._changed:
            self._is_held = False
            self._changed.notify_all()
        found = self._settled.pop(0) if self._settled else self._next()
        if isinstance(found, BaseException):
            raise found
        return found

    def _next(self) -> Mapping[str, Any] | BaseException:
        while True:
            is_alive = self.is_alive()
            try:
                return self.outqueue.get(timeout=_LOOK_S if is_alive else 0.0)
            except queue.Empty:
                if not is_alive:
                    raise CommError("the updater thread has ended: there is no update to wait for.") from None

    def run(self) -> None:
        """Update until stopped; an error is the last thing in `outqueue`."""
        torch.set_flush_denormal(True)  # of this thread: see `training_process`
        while self._may_begin():
            try:
                self._put(self._update())
            except BaseException as error:  # `step` raises it in the thread that waits for the update
                self.stopped = True
                self.outqueue.put(error)

    def _may_begin(self) -> bool:
        with self._changed:
            # A batch under way is learned from to its end.
            while self._is_held and self.local_worker.is_between_batches and not self.stopped:
                self._is_idle = True
                self._changed.notify_all()
                self._changed.wait(_LOOK_S)
            self._is_idle = False
            return not self.stopped

    def _put(self, info: Mapping[str, Any]) -> None:
        while not self.stopped:
            try:
                return self.outqueue.put(info, timeout=_LOOK_S)
            except queue.Full:
                continue  # updates are as far ahead as they may be

    def settle(self, *, timeout_s: float = _SETTLE_S) -> None:
        """Wait until the batch under way is learned from, and hold the thread until the next `step`."""
        if not self._updates_itself:
            return
        end_s = time.monotonic() + timeout_s
        with self._changed:
            self._is_held = True
        while self.is_alive() and time.monotonic() < end_s:
            try:
                self._settled.append(self.outqueue.get(timeout=0.05))
            except queue.Empty:
                if self._is_idle:
                    return
        if self.is_alive():
            raise CommError(f"the update under way is not over after {timeout_s:g} s: nothing can be saved now.")

    def stop(self, *, timeout_s: float = _STOP_S) -> bool:
        """End the thread after the update under way; return whether it has ended in time."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()
        if self.ident is not None and self is not threading.current_thread():
            self.join(timeout_s)
            if self.is_alive():
                logger.warning("an update is not over %g s after it was to stop.", timeout_s)
        return not self.is_alive()

    # --- the four patterns

    def _update(self) -> Mapping[str, Any]:
        local = self.local_worker
        if self._workers is not None and not self._has_begun:
            self._begin(self._workers)
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

    def _begin(self, workers: GWorkerSet) -> None:
        self._has_begun = True
        workers.broadcast("set_weights", self.local_worker.get_weights())

    def _update_ranks(self, workers: GWorkerSet) -> dict[str, Any]:
        """Have every rank apply the mean of all gradients. Raises CommError if one is lost: the others cannot go on."""
        replies = workers.call("step", True, env_step=self._env_step)
        if len(replies) < self.num_workers and not workers.is_leaving():
            raise CommError(
                "decentralised updates need every gradient worker, and one was lost. Go on with ding --resume; updates "
                "that one process applies (update.decentralized=False) survive lost workers."
            )
        info = self._merged([reply.value for reply in replies])
        if replies:
            self.local_worker.algo.count_update(info)
        return info

    def _update_by_mean(self, workers: GWorkerSet) -> dict[str, Any]:
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
        found = [_unpacked(reply.value) for reply in replies]
        info = self._merged([each for _, each in found])
        self.local_worker.apply_gradients(mean_of([gradients for gradients, _ in found], self.local_worker.algo), info)
        workers.broadcast("set_weights", self.local_worker.get_weights())
        return {**info, "GradientWorkers": len(replies)}

    def _update_by_first(self, workers: GWorkerSet) -> dict[str, Any]:
        """Apply the gradient that comes first, and send its worker, alone, the weights."""
        reply = workers.next_ready("step", env_step=self._env_step, timeout_s=workers.policy.step_timeout_s)
        if reply is None:
            return {"HasGradient": False}
        local, (gradients, info) = self.local_worker, _unpacked(reply.value)
        local.note_remote(info)
        age, limit = local.actor_version - info["ActorVersion"]["GradientCompute"], self.settings.max_staleness
        is_stale = limit is not None and age > limit
        self.stale_gradients += is_stale
        if is_stale and self.settings.staleness == "drop":
            info["HasGradient"] = False
        else:
            if is_stale:
                gradients = weakened(gradients, 1.0 / (1.0 + age), local.algo)
            info["ActorVersion"] = {**info["ActorVersion"], "ActorUpdate": local.actor_version}
            local.apply_gradients(gradients, info)
        workers.send(reply.worker, "set_weights", local.get_weights())
        return {**info, "StaleGradients": self.stale_gradients}

    @property
    def _env_step(self) -> int:
        return int(getattr(getattr(self.local_worker.storage, "rows", None), "env_step", 0))

    def _merged(self, infos: Sequence[Any]) -> dict[str, Any]:
        found = [each.info if isinstance(each, GradientResult) else each for each in infos]
        for info in found:
            self.local_worker.note_remote(info)
        return merge_infos(found)

    def _with_lags(self, info: dict[str, Any]) -> Mapping[str, Any]:
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
        self, grad_workers_factory: Callable[[Any, int], GWorkerSet], index_worker: int = 0,
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
        given = [host, places[0]["port"]], workers.policy.start_timeout_s
        workers.call(
            "join_ranks", *given[0],
            each=lambda rank, number: {"rank": rank, "world_size": number, "timeout_s": given[1]},
        )  # fmt: skip
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

    def step(self) -> Mapping[str, Any]:
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
                raise CommError("the gradient workers do not say what they have learned.")
            self.local_worker.algo.load_learned_state(replies[0].value)

    def collect_random(self, rows: int) -> int:
        """Have rows of random actions collected; return how many came."""
        if not self.num_workers:
            return int(self.local_worker.collect_random(rows)["NumRandom"])
        replies = self.grad_workers.call("collect_random", max(1, rows // self.num_workers))
        for reply in replies:
            self.local_worker.note_remote(reply.value)
        return sum(reply.value["NumRandom"] for reply in replies)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `algo` in every worker; "lr" sets the optimizers too. Return whether there is one."""
        self.updater.settle()
        return self.grad_workers.call_everywhere("update_algorithm_parameter", parameter_name, new_parameter_value)

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `storage` in every worker; return whether there is one."""
        self.updater.settle()
        return self.grad_workers.call_everywhere("update_storage_parameter", parameter_name, new_parameter_value)

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
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


def _unpacked(result: GradientResult) -> tuple[Any, dict[str, Any]]:
    """Return (gradients, info) of a remote worker's result."""
    gradients, info = result
    assert gradients is not None, "a remote worker sends its gradient"
    state = unpack_state(gradients)
    return state["gradients"], {**state["losses"], **info}


def mean_of(gradients: Sequence[Any], algo: Any) -> Any:  # Any: as `algo.compute_gradients` returns them
    """Return the mean of gradients of several workers."""
    own = getattr(algo, "mean_gradients", None)
    if own is not None:
        return own(gradients)
    return {name: sum(each[name] for each in gradients) / len(gradients) for name in gradients[0]}


def weakened(gradients: Any, factor: float, algo: Any) -> Any:
    """Return gradients that count a share `factor`."""
    own = getattr(algo, "weaken_gradients", None)
    return {name: factor * each for name, each in gradients.items()} if own is None else own(gradients, factor)
