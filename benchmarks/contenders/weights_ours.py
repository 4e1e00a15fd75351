"""Our transports of weights, and the weight updater."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.contenders import weights_work as work  # isort: skip  (pins the threads first)

from torch import nn
from torch.distributed import TCPStore

from ding_like.comm.channels import Version, WeightPublisher, WeightReader, Weights
from ding_like.comm.keys import make_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import prune_weights, read_weights, write_weights
from ding_like.comm.rest.worker import RestWeightPublisher, RestWeightReader, WorkerLink
from ding_like.comm.tensors import encode_weights, load_into, state_of
from ding_like.comm.update_worker import WeightUpdateWorker
from ding_like.comm.weight_updater import DistributedWeightUpdater
from ding_like.config import compile_config
from ding_like.worker import Coordinator

_POLICY_ID = "policy"
_MEMORY = Path("/dev/shm")  # where a parallel run on one machine keeps its files
_folders: list[tempfile.TemporaryDirectory[str]] = []  # of this process, and gone with it


def _own_folder(where: Path | None = None) -> Path:
    _folders.append(tempfile.TemporaryDirectory(prefix="bench-", dir=where if where and where.is_dir() else None))
    return Path(_folders[-1].name)


def _weights(module: nn.Module, version: int) -> Weights:
    return Weights(_POLICY_ID, Version(1, version), state_of(module))


class Channel(work.Base):
    """Transport with a WeightPublisher here and a WeightReader in each worker."""

    publisher: WeightPublisher

    def send(self, module: nn.Module, version: int) -> None:
        self.publisher.publish(_weights(module, version))

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        reader, end = self.make_reader(index)
        seen: Version | None = None
        try:
            while seen is None or seen.update < self.num_versions:
                weights = reader.newest(_POLICY_ID, newer_than=seen, timeout_s=work.DEADLINE_S)
                if weights is None:
                    raise TimeoutError(f"worker {index} got nothing newer than {seen}")
                seen = weights.version
                if seen.update:
                    load_into(module, weights.state)
                    applied()
            done.wait(work.DEADLINE_S)
        finally:
            end()

    def make_reader(self, index: int) -> tuple[WeightReader, Callable[[], Any]]:
        """Return the reader of a worker, and what closes it."""
        raise NotImplementedError

    def close(self) -> None:
        self.publisher.close()


class Files(work.Base):
    """Write a file, and tell each worker of it and its hash through a pipe."""

    def __init__(self) -> None:
        self._folder = _own_folder(_MEMORY)

    def prepare(self, module: nn.Module, context: Any) -> None:
        self._pipes = [context.Pipe(duplex=False) for _ in range(work.NUM_WORKERS)]

    def send(self, module: nn.Module, version: int) -> None:
        written = write_weights(self._folder, encode_weights(_weights(module, version)))
        prune_weights(self._folder, _POLICY_ID, ())
        for _, end in self._pipes:
            end.send((version, written.sha256))

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        for _ in range(self.num_versions):
            version, sha256 = self._pipes[index][0].recv()
            load_into(module, read_weights(self._folder, _POLICY_ID, 1, version, sha256=sha256))
            applied()


class Rest(Channel):
    """Announce files to a coordinator in a process of its own; workers ask it and read them, or have it stream them."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._folder = _own_folder(_MEMORY)
        self._keys = self._folder / "keys.json"
        make_keys(self._keys)

    def prepare(self, module: nn.Module, context: Any) -> None:
        told, tell = context.Pipe(duplex=False)
        self._may_end = context.Event()
        self._ready = context.Semaphore(0)
        self._coordinator = context.Process(target=_coordinate, args=(self._folder, tell, self._may_end), daemon=True)
        self._coordinator.start()
        if not told.poll(work.DEADLINE_S):
            raise TimeoutError("the coordinator has not started")
        self._url = told.recv()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_coordinator"}

    def _link(self, role: str) -> WorkerLink:
        cfg: dict[str, Any] = {"coordinator": self._url, "key_file": self._keys, "communication_mode": self._mode}
        if self._mode == "shared":
            cfg.update(path_data=str(self._folder / "data"), path_policy=str(self._folder / "policy"))
        link = WorkerLink(role, cfg, None, resources={})
        link.start()
        return link

    def open(self, module: nn.Module) -> None:
        self._learner = self._link("learner")
        task = _claim(self._learner)
        self._publisher = RestWeightPublisher(self._learner, task)
        self._publisher.publish(_weights(module, 0)._replace(version=Version(task.attempt, 0)), wait_s=work.DEADLINE_S)
        self._attempt = task.attempt
        self._evaluate()
        for _ in range(work.NUM_WORKERS):
            self._ready.release()

    def _evaluate(self) -> None:
        """Do the evaluation that each run begins with, so that workers get tasks to collect only."""
        link = self._link("collector")
        task = _claim(link)
        while task.kind != "eval":
            link.coordinator.finish_task(link.worker_id, task.task_id, m.FinishTask(task.attempt, {}))
            task = _claim(link)
        result = {"returns": [0.0], "lengths": [1], "version": 0, "duration_s": 0.0}
        link.coordinator.finish_task(link.worker_id, task.task_id, m.FinishTask(task.attempt, result))
        link.close()

    def send(self, module: nn.Module, version: int) -> None:
        self._publisher.publish(_weights(module, version)._replace(version=Version(self._attempt, version)))

    def make_reader(self, index: int) -> tuple[WeightReader, Callable[[], Any]]:
        if not self._ready.acquire(timeout=work.DEADLINE_S):
            raise TimeoutError("the run has not begun")
        link = self._link("collector")
        task = _claim(link)
        reader = RestWeightReader(link)
        link.begin(task)
        return reader, link.close

    def close(self) -> None:
        self._publisher.abandon(timeout_s=5.0)
        self._learner.close()
        self._may_end.set()
        self._coordinator.join(10.0)
        self._coordinator.kill()


def _claim(link: WorkerLink) -> m.Task:
    """Return a task."""
    task = link.coordinator.claim(link.worker_id, m.Claim(wait_s=5.0)).task
    if task is None:
        raise TimeoutError("the coordinator has no task")
    return task


def _coordinate(folder: Path, tell: Any, may_end: Any) -> None:
    """Be the coordinator's process."""
    main = dict(
        exp_name=str(folder / "run"),
        env=dict(
            env_id="CartPole-v1", collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1, stop_value=10**9
        ),
        policy=dict(eval=dict(evaluator=dict(eval_freq=10**8))),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
    system = dict(
        path_data=str(folder / "data"),
        path_policy=str(folder / "policy"),
        num_collectors=work.NUM_WORKERS + 1,
        # No worker sends heartbeats here.
        coordinator=dict(lease_ttl_s=3600.0, heartbeat_s=600.0, publish_timeout_s=3600.0),
    )
    cfg = dict(main=compile_config(main, create, seed=0, renew_dir=False), system=system, key_file=folder / "keys.json")
    coordinator = Coordinator(cfg)
    coordinator.start()
    try:
        tell.send(coordinator.url)
        may_end.wait(600.0)
    finally:
        coordinator.close()


class Updater(work.Base):
    """Push by our DistributedWeightUpdater over a TCPStore and gloo: `push_weights` returns when all have answered."""

    acknowledges = True

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def _open_store(self, *, is_master: bool) -> TCPStore:
        timeout = timedelta(seconds=work.DEADLINE_S)
        return TCPStore("127.0.0.1", self._port, is_master=is_master, timeout=timeout, wait_for_workers=False)

    def open(self, module: nn.Module) -> None:
        self._store = self._open_store(is_master=True)
        self._updater = DistributedWeightUpdater(self._store, module, work.NUM_WORKERS, sync=True)

    def send(self, module: nn.Module, version: int) -> None:
        self._updater.push_weights()

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        worker = WeightUpdateWorker(self._open_store(is_master=False), index + 1, module)
        for _ in range(self.num_versions):
            if worker.step(timeout_s=work.DEADLINE_S) is None:
                raise TimeoutError(f"worker {index} received nothing")
        done.wait(work.DEADLINE_S)
        worker.close()

    def close(self) -> None:
        self._updater.close()


if __name__ == "__main__":
    makers: dict[str, Callable[[], work.Way]] = {
        "files": Files,
        "rest_files": lambda: Rest("shared"),
        "rest_stream": lambda: Rest("stream"),
        "updater": Updater,
    }
    preload = ("ding_like.comm.rest.worker", "ding_like.comm.weight_updater", "ding_like.worker")
    work.main(makers, (), preload)
