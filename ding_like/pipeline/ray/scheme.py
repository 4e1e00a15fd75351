"""Training scheme: an update worker over gradient workers over collectors, and the runner of a run by one."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch

from ding_like.comm.ray.actors import ClusterLoss
from ding_like.comm.ray.cluster import ClusterWatch, open_cluster, options_of
from ding_like.comm.tensors import unpack_state
from ding_like.comm.workers.failures import FailureLog
from ding_like.config import FrozenConfig
from ding_like.errors import CommError, ConfigError, TrainingError
from ding_like.pipeline.components import Components
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.ray.plain import mean_gradients, weaken_gradients
from ding_like.pipeline.ray.worker_set import (
    COMMUNICATIONS,
    EXECUTIONS,
    LOOK_S,
    ProducerThread,
    RemoteWorker,
    Worker,
    check_fraction,
    check_word,
)
from ding_like.pipeline.ray.workers import CWorkerSet, GradientResult, GWorker, GWorkerSet, merge_infos
from ding_like.pipeline.scheme_parts import Algorithm, LearnerSide, SchemeFactories, no_envs
from ding_like.pipeline.settings import COMMUNICATION, GradSettings, RaySettings
from ding_like.pipeline.training_loop import MakeRunner, Runner, RunnerLostError
from ding_like.policy.sharing import check_sharing
from ding_like.report.details import Details
from ding_like.types import Config, Factory, Info, Setting, State
from ding_like.utils.measure import Interval

logger = logging.getLogger(__name__)

_METRICS_S = 1.0
_RESCUE_S = 15.0  # for workers of a lost cluster to answer: Ray ends this process after a minute
_MEASURES = ("PolicyLag", "GradientAsynchrony", "data_age_s")
_SETTLE_S = 600.0  # for the batch under way
_SYNC, _ASYNC = "synchronous", "asynchronous"


class UpdaterThread(ProducerThread[Info]):
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
        return found

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
            self.local_worker.algo.side.parts.learner.count_update(info)
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
        check_word("grad_execution", grad_execution, EXECUTIONS)
        check_word("grad_communication", grad_communication, COMMUNICATIONS)
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
        address = host, places[0]["port"]
        workers.call("join_ranks", *address, each=lambda rank, number: {"rank": rank, "world_size": number, **limit})
        workers.call("load_learned_state", local.learned_state(), local.actor_version)
        learner = local.algo.side.parts.learner
        own, counts = learner.policy.state_dict, learner.state_dict()

        def state_dict() -> State:
            self.settle()  # the ranks have learned what is saved
            return own()

        learner.policy = learner.policy._replace(state_dict=state_dict)
        learner.load_state_dict(counts)

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
            self.local_worker.load_learned_state(replies[0].value, self.actor_version)

    def collect_random(self, rows: int) -> int:
        """Have rows of random actions collected; return how many came."""
        if not self.num_workers:
            return int(self.local_worker.collect_random(rows)["NumRandom"])
        replies = self.grad_workers.call("collect_random", max(1, rows // self.num_workers))
        for reply in replies:
            self.local_worker.count_remote(reply.value)
        return sum(reply.value["NumRandom"] for reply in replies)

    def _update(self, part: str, name: str, value: object) -> bool:
        self.updater.settle()
        return self.grad_workers.call_everywhere(f"update_{part}_parameter", name, value)

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


class Scheme:
    """Workers of a training scheme: `update_worker`, a UWorker over GWorkers over CWorkers.

    The factories are CWorker's: those of `SchemeFactories`, whose policies learn with the buffer and the learner of
    their config, or plain ones (docs/ray_parts.md). `actor_factory` makes actors that learn,
    `col_actor_factory` may make the collectors'. With 0 `num_col_workers` each gradient worker collects by itself; with
    up to 1 `num_grad_workers` this process
    computes gradients. `settings` has the rest, and `side` the learner's side of a run. Raises ConfigError,
    with the reasons, for patterns that exclude each other. Source: PyTorchRL's Scheme.
    """

    def __init__(
        self, algo_factory: Factory, actor_factory: Factory, storage_factory: Factory, train_envs_factory: Factory,
        test_envs_factory: Factory = no_envs, *, num_col_workers: int = 0, col_workers_communication: str = _SYNC,
        num_grad_workers: int = 1, grad_workers_communication: str = _SYNC,
        decentralized_update_execution: bool = False, local_device: str | None = None,
        col_actor_factory: Factory | None = None, settings: RaySettings | None = None, side: LearnerSide | None = None,
        log: FailureLog | None = None, is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self.settings, self.is_leaving = settings or RaySettings(), is_leaving
        self.is_decentralized, self.log = decentralized_update_execution, log if log is not None else FailureLog()
        self._num_collectors, self._num_parents = num_col_workers, num_grad_workers if num_grad_workers > 1 else 0
        collect, is_ahead = self.settings.collect, col_workers_communication == _ASYNC
        own = getattr(algo_factory, "__self__", None)
        factories = own if isinstance(own, SchemeFactories) else None
        check_word("col_workers_communication", col_workers_communication, COMMUNICATIONS)
        check_word("grad_workers_communication", grad_workers_communication, COMMUNICATIONS)
        execution = "Parallel" if self._num_parents else "Central"
        col_execution = "Parallel" if num_col_workers else "Central"
        with ExitStack() as opened:
            if side is None and factories is not None:
                collects = not (num_col_workers or is_ahead or self._num_parents)
                side = factories.run_side(collects=collects, max_policy_lag=collect.max_policy_lag)
                opened.callback(side.close)
            self.side = side
            self.random_rows = 0 if side is None else side.random_rows  # that are still to be collected
            is_synchronous = grad_workers_communication == _SYNC
            faults = self._faults(is_ahead=is_ahead, averages=execution == "Parallel", is_synchronous=is_synchronous)
            if text := "; ".join(faults):
                raise ConfigError(f"this scheme cannot be: {text}.")
            if side is not None and self._num_parents:
                check_sharing(side.parts.policy)
            needs = self.settings.needs(num_col_workers, self._num_parents)
            cluster = open_cluster(needs) if needs else None
            if cluster is not None:
                opened.callback(cluster.close)
            col_workers = dict(
                algo_factory=algo_factory, storage_factory=storage_factory, train_envs_factory=train_envs_factory,
                test_envs_factory=test_envs_factory, is_apart=is_ahead and not num_col_workers,
                actor_factory=col_actor_factory or (actor_factory if factories is None else factories.actor),
            )  # fmt: skip
            self.update_worker = self.settings.class_of("u_worker")(
                GWorkerSet.create_factory(
                    self._num_parents, col_execution=col_execution, col_communication=col_workers_communication,
                    **self._grad_workers(col_workers, {"actor_factory": actor_factory}, factories),
                ),
                0, collect.fraction_workers if self._num_parents else 1.0, execution, grad_workers_communication,
                decentralized_update_execution, local_device, settings=self.settings.grad,
            )  # fmt: skip
            opened.callback(self.update_worker.stop)
            self._opened = opened.pop_all()

    def _faults(self, *, is_ahead: bool, averages: bool, is_synchronous: bool) -> Iterator[str]:
        """Yield the reasons for which the patterns cannot be together."""
        collect, is_decentralized = self.settings.collect, self.is_decentralized
        limits = {name: getattr(collect, name) for name in ("fraction_workers", "fraction_samples")}
        outside = [name for name, limit in limits.items() if not 0 < limit <= 1]
        below = [name for name, limit in limits.items() if limit < 1]
        for name in outside:
            yield f"{name} is {limits[name]}, expected more than 0, at most 1"
        if below and not outside:
            ends = f"{below[0]}={limits[below[0]]} ends"
            if not self._num_collectors:
                yield f"{ends} a round of several collectors, and collection is central"
            elif is_ahead:
                yield f"{ends} a round, and asynchronous collection has none"
            elif len(below) == 1:
                yield f"{ends} no round while {(limits.keys() - below).pop()} is 1: set it below 1, too"
        if is_ahead and collect.max_policy_lag == 0:
            yield "asynchronous rows are older than an update almost always: max_policy_lag=0 would drop them"
        if is_decentralized and not averages:
            yield "decentralised updates are made by several gradient workers together, and gradients are central"
        if is_decentralized and not is_synchronous:
            yield "asynchronous gradients are not those of one step, which decentralised updates take together"
        if below and self.side is not None and self.side.collects_episodes:
            yield "whole episodes are never cut, so that limits below 1 would end no round"

    def _grad_workers(self, col_workers: Config, local: Config, factories: SchemeFactories | None) -> Config:
        """Return the parameters of the gradient workers, of which the local one has the run's parts.

        `col_workers` and `local` have the factories of all collectors, and those of the gradient workers' own.
        """
        collect, grad, side = self.settings.collect, self.settings.grad, self.side
        col_workers = dict(
            **col_workers, total_parent_workers=self._num_parents, col_fraction_samples=collect.fraction_samples,
            compress_data_to_send=bool(collect.compress if collect.compress != "auto" else self.settings.address),
            col_worker_resources=options_of(collect.resources), policy=self.settings.failure,
            worker_class=self.settings.class_of("c_worker"),
            remote_device="cuda" if collect.resources.num_gpus > 0 else None,
        )  # fmt: skip
        away, home = CWorkerSet.create_factory(self._num_collectors, **col_workers, local_params=local), local
        if side is not None:
            assert factories is not None, "a run has the factories of its config"
            policy, envs = side.parts.policy, side.parts.collector_env
            algo = Algorithm(factories, policy, side)
            home = dict(actor_factory=lambda device: policy, algo_factory=lambda device, actor: algo)
            home |= {} if envs is None else dict(train_envs_factory=lambda *_: envs)
        here = CWorkerSet.create_factory(
            self._num_collectors, **col_workers, local_params=home, log=self.log, is_leaving=self.is_leaving
        )
        num_workers = max(self._num_collectors, 1)
        options = dict(
            broadcast_interval=self.settings.weights.interval, max_policy_lag=collect.max_policy_lag,
            max_queue_size=1 if side is not None and side.is_on_policy else max(1, num_workers // 2),
            segment_rows=None if side is None else side.segment_rows(collect.segment_rows, num_workers),
            least_rows=1 if side is None else side.least_share,
        )  # fmt: skip
        return dict(
            col_workers_factory=away, col_fraction_workers=collect.fraction_workers,
            grad_worker_resources=options_of(grad.resources), compress_grads_to_send=grad.compress,
            local_params={"col_workers_factory": here}, worker_options=options,
            worker_class=self.settings.class_of("g_worker"), policy=self.settings.failure, log=self.log,
            is_leaving=self.is_leaving,
        )  # fmt: skip

    @property
    def env_step(self) -> int:
        """Number of env steps of the run."""
        return self.update_worker.env_step if self.side is None else self.side.env_step

    def collect_random(self) -> None:
        """Collect the rows of random actions that a run begins with."""
        side = self.side
        while side is not None and self.random_rows > 0 and not self.is_leaving():
            if side.collects:
                side.collect_at_random()
                self.random_rows = 0
            else:
                share = side.random_share * max(self._num_collectors, 1) * max(self._num_parents, 1)
                came = self.update_worker.collect_random(min(self.random_rows, share))
                self.random_rows = max(0, self.random_rows - came)

    @property
    def has_failed_workers(self) -> bool:
        """Whether workers failed whose work cannot go on."""
        return self.is_decentralized or bool(self.log.rows)

    def describe(self) -> dict[str, str]:
        """Return the status of the workers: rows of a run's panel."""
        losses = {"failures": str(self.log)} if self.log.rows else {}
        return {**({} if self.side is None else self.side.describe()), **losses}

    def details(self) -> Details:
        """Return the workers' processes, their failures and how old rows are; any thread may call it.

        Collectors of remote gradient workers are their own, and not listed.
        """
        worker, side = self.update_worker, self.side
        found = [*worker.grad_workers.processes(), *worker.local_worker.c_workers.processes()]
        if side is None or side.collects:
            return Details().beside(self.log, found)
        report, newest = side.receiver.report, side.newest().update
        return report.details().beside(
            self.log, [replace(each, **report.report_of(each.name, newest)) for each in found]
        )

    def stop(self) -> None:
        """End all workers, and what else was opened, within 10 s; may be called again."""
        self._opened.close()


class Learner:
    """Trainer by a scheme for `target_steps` env steps, for a loop of one's own. Source: PyTorchRL's Learner."""

    def __init__(self, scheme: Scheme, target_steps: int, log_dir: str | None = None) -> None:
        """Train nothing before the first `step`; checkpoints go into the experiment's folder."""
        self.scheme, self.target_steps, self.log_dir = scheme, target_steps, log_dir
        self._info: Info | None = None

    def step(self) -> Info:
        """Run one update and return its info: of episodes, versions, lag, times and losses, by name."""
        if self._info is None:
            self.scheme.collect_random()
        self._info = self.scheme.update_worker.step()
        return self._info

    def done(self) -> bool:
        """Return whether `target_steps` env steps were taken."""
        return self.scheme.env_step >= self.target_steps

    def print_info(self) -> None:
        """Log the info of the last update."""
        logger.info("env step %s: %s", f"{self.scheme.env_step:,}", dict(self._info or {}))

    def save_model(self, fname: str = "model.pth.tar") -> None:
        """Write a checkpoint of the learner, whole or not at all."""
        self.scheme.update_worker.save_model(fname)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> bool:
        """Set an attribute of the algorithm in all workers; return whether all have it."""
        return self.scheme.update_worker.update_algorithm_parameter(parameter_name, new_parameter_value)

    def stop(self) -> None:
        """End all workers."""
        self.scheme.stop()


class RayRunner:
    """Runner whose iterations are steps of a UWorker: rows are collected, and every update that they allow is made.

    With a `watch`, every iteration begins with a check of the cluster, whose loss the workers notice too late.
    """

    def __init__(self, scheme: Scheme, side: LearnerSide, watch: ClusterWatch | None = None) -> None:
        self._scheme, self._worker, self._side, self._watch = scheme, scheme.update_worker, side, watch
        self._measures: dict[str, deque[float]] = {name: deque(maxlen=100) for name in _MEASURES}
        self._metrics_due = Interval(_METRICS_S, starts_due=True)

    @property
    def setting(self) -> Setting:
        """Setting that collectors were sent last."""
        local = self._worker.local_worker.c_workers.local_worker()
        found: Setting = local.setting if self._side.collects else self._side.receiver.report.setting
        return found

    def start(self) -> None:
        """Collect the rows of random actions."""
        self._guarded(self._scheme.collect_random)

    def step(self) -> None:
        """Run one iteration: updates until the minibatches of its rows are used up. Raises RunnerLostError."""
        self._guarded(self._step)

    def _step(self) -> None:
        local, has_more = self._worker.local_worker, True
        while has_more:
            self._record(self._worker.step())
            has_more = self._worker.is_stepped_here and not (
                local.is_between_batches and (self._scheme.is_leaving() or not local.has_batch())
            )

    def _record(self, info: Info) -> None:
        for name, values in self._measures.items():
            if name in info:
                values.append(float(info[name]))
        parts = self._side.parts
        if parts.metrics is not None and info.get("HasGradient") and self._metrics_due.pass_s():
            env_step, train_iter = self._scheme.env_step, parts.learner.train_iter
            parts.metrics.write("updates", self._means(), env_step=env_step, train_iter=train_iter)

    def _means(self) -> dict[str, float]:
        means = {name: sum(values) / len(values) for name, values in self._measures.items() if values}
        return {name: mean for name, mean in means.items() if not math.isnan(mean)}

    def flush(self) -> None:
        """Wait for the update under way, and fetch what other processes have learned."""
        self._translate_errors(self._worker.settle)

    def rescue(self) -> bool:
        """Return whether a point can be saved after RunnerLostError: what decentralised ranks have learned is lost."""
        if self._scheme.is_decentralized:
            return False
        # Workers may answer while the head of their cluster does not.
        limit = threading.Timer(_RESCUE_S, self._note_loss)
        limit.daemon = True
        limit.start()
        try:
            self._worker.settle()
        except (CommError, TrainingError):
            return False
        finally:
            limit.cancel()
            limit.join()
        return True

    def _note_loss(self) -> None:
        if self._watch is not None and self._watch.lost is not None:
            ClusterLoss.note(self._watch.lost)

    def workers(self) -> Mapping[str, str]:
        """Return the status of the workers, for the run's panel."""
        measured = {name: f"{value:.3g}" for name, value in self._means().items() if value}
        store = {} if self._watch is None else {"store": str(self._watch.store())}
        return {**self._scheme.describe(), **measured, **store}

    def details(self) -> Details:
        """Return the processes of the workers, their failures, and the rows that were lost; any thread may call it."""
        return self._scheme.details()

    def state_dict(self) -> State:
        """Return how much was collected and how many updates were made of it."""
        return {"rows": self._side.rows_state(), "random_rows": self._scheme.random_rows}

    def load_state_dict(self, state: State) -> None:
        """Resume from `state_dict`: collect the missing random rows, and make the updates that were due."""
        if state:
            self._side.rows.load_state_dict(state["rows"])
        self._scheme.random_rows = max(0, state.get("random_rows", 0))
        self.start()
        self._guarded(self._finish)

    def _finish(self) -> None:
        if self._worker.is_stepped_here:
            self._worker.local_worker.begin_batches()
            if self._worker.local_worker.has_batch():
                self._step()

    def close(self) -> None:
        """End the workers; those of a lost cluster are not waited for."""
        self._note_loss()
        self._scheme.stop()

    def _guarded(self, act: Callable[[], object]) -> None:
        """Call `act`. Raises RunnerLostError where the cluster is lost already, or the workers are lost meanwhile."""
        if self._watch is not None and self._watch.lost is not None:
            raise RunnerLostError(f"{self._watch.describe_loss()}.")
        self._translate_errors(act)

    def _translate_errors(self, act: Callable[[], object]) -> None:
        try:
            act()
        except CommError as error:
            raise RunnerLostError(str(error)) from error
        except TrainingError as error:
            if self._scheme.has_failed_workers:
                raise RunnerLostError(str(error)) from error
            raise


def ray_runner(
    cfg: FrozenConfig, parts: Components, settings: RaySettings, *, seed: int, log: FailureLog | None = None,
    env_setting: EnvSetting | None = None, model: torch.nn.Module | None = None, dynamic_seed: bool = True,
    watch: ClusterWatch | None = None,
) -> MakeRunner:  # fmt: skip
    """Return what makes the runner of a run with these parts (`build_driver`), whose workers run on Ray."""
    fitted: Config = parts.policy.cfg
    made = SchemeFactories.of(
        cfg, seed=seed, env_setting=env_setting, model=model, dynamic_seed=dynamic_seed, fitted=fitted
    )

    def make_runner(is_leaving: Callable[[], bool]) -> Runner:
        # Known once the parts have been restored.
        factories = replace(made, begun_at=parts.collector.envstep)
        side = LearnerSide(cfg, parts, max_policy_lag=settings.collect.max_policy_lag)
        scheme = Scheme(
            factories.algo, factories.learning_actor, factories.storage, factories.train_envs,
            num_col_workers=settings.collect.workers, num_grad_workers=settings.grad.workers,
            col_workers_communication=COMMUNICATION[settings.collect.comm or "sync"],
            grad_workers_communication=COMMUNICATION[settings.grad.comm],
            decentralized_update_execution=settings.update.decentralized, local_device=settings.update.device,
            settings=settings, side=side, log=log,
            is_leaving=lambda: is_leaving() or (watch is not None and watch.lost is not None),
        )  # fmt: skip
        return RayRunner(scheme, side, watch)

    return make_runner
