"""A learner over scripted batches, and gradient workers that hold replicas of its policy."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ding_like.comm.channels import Segment, Version
from ding_like.comm.local import LocalRows
from ding_like.comm.workers.failures import FailureLog, FailurePolicy
from ding_like.comm.workers.host import Host
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.ray.g_worker import GWorker, GWorkerSet
from ding_like.pipeline.ray.u_worker import UWorker
from ding_like.pipeline.roles.gradient_rounds import Driver, GradientSettings
from ding_like.pipeline.update_ratio import UpdateRatio
from ding_like.policy import Policy
from ding_like.utils.metrics import MetricsSink
from ding_like.worker import BaseLearner
from tests.contracts.grad_cases import GRAD_CASES, batches_of
from tests.contracts.policy_cases import make, tensors_of


class ScriptedStore:
    """Store that returns the batches of a case in order and keeps the priorities that come back."""

    def __init__(self, name: str, *, rows: int | None = None) -> None:
        case = GRAD_CASES[name]
        self._batches = batches_of(case, make(case))
        self._rows = rows
        self._next_id = 0
        self.drawn: list[TransitionBatch] = []
        self.updates: list[Mapping[str, Any]] = []

    def push(self, data: Any, cur_collector_envstep: int) -> None:
        """Take nothing: the batches are scripted."""

    def sample(self, batch_size: int, cur_learner_iter: int) -> TransitionBatch:
        batch = next(self._batches)
        batch = batch[: len(batch) // 6 * 6 if self._rows is None else self._rows]  # for two or three workers
        ids = np.arange(self._next_id, self._next_id + len(batch))
        self._next_id += len(batch)
        version = np.full(len(batch), max(cur_learner_iter - 1, 0))
        self.drawn.append(batch.with_columns(replay_buffer_idx=ids, replay_unique_id=ids, policy_version=version))
        return self.drawn[-1]

    def update(self, info: Mapping[str, Any]) -> None:
        self.updates.append(info)

    def count(self) -> int:
        return 10_000


class HeldPolicy:
    """Set of collectors that holds parameters only: a local worker with a policy."""

    def __init__(self, policy: Policy) -> None:
        algo = SimpleNamespace(lr=0.1, policy=policy)
        self._local = SimpleNamespace(actor=policy, algo=algo, storage=SimpleNamespace(max_size=7))
        self._local.update_algorithm_parameter = partial(self._set, algo)
        self.is_stopped = False

    @staticmethod
    def _set(owner: Any, name: str, value: Any) -> bool:
        if not hasattr(owner, name):
            return False
        setattr(owner, name, value)
        return True

    def local_worker(self) -> Any:
        return self._local

    def remote_workers(self) -> list[Any]:
        return []

    has_remote = False

    def tell(self, *_: Any) -> bool:
        return True

    def stop(self, *, timeout_s: float = 10.0) -> None:
        self.is_stopped = True


def held(name: str, seed: int, device: Any, initial_weights: Any, index_parent: int) -> HeldPolicy:
    """Return a worker's replica: of other weights than the driver's, which are sent to it."""
    torch.set_num_threads(1)
    return HeldPolicy(make(GRAD_CASES[name], seed=seed + index_parent))


class Run:
    """Run over scripted batches by a pattern; each turn collects nothing and allows so many batches."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        execution: str = "Parallel",
        communication: str = "synchronous",
        decentralized: bool = False,
        num_workers: int = 2,
        batches_a_turn: int = 2,
        rows: int | None = None,
        settings: GradientSettings | None = None,
        host: Host | None = None,
        worker_class: type[GWorker] = GWorker,
        standby: int = 0,
        failure: FailurePolicy | None = None,
        compress: bool = False,
    ) -> None:
        self.policy = make(GRAD_CASES[name])
        self.metrics = MetricsSink(str(folder))
        self.learner = BaseLearner(
            dict(hook={}, log_policy=False), self.policy.learn_mode, tb_logger=self.metrics, exp_name=str(folder)
        )
        self.store = ScriptedStore(name, rows=rows)
        self.rows = LocalRows(
            self.store,
            UpdateRatio.per_segment(batches_a_turn),
            segment_rows=1,
            batch_size=16,
            newest=lambda: Version(0, self.learner.train_iter),
        )
        self.log = FailureLog()
        self.num_turns = 0
        settings = GradientSettings(step_timeout_s=60.0) if settings is None else settings
        with_priority = bool(self.policy.cfg.priority)
        self.driver = Driver(
            self.learner, self.policy, self.rows, self.collect, with_priority=with_priority, settings=settings
        )

        def factory(device: Any, index: int) -> GWorkerSet:
            made = GWorkerSet(
                num_workers,
                index,
                device,
                "Central",
                "synchronous",
                partial(held, name, 100),
                compress_grads_to_send=compress,
                grad_worker_resources=dict(num_cpus=0.5),
                local_col_workers_factory=lambda *_: HeldPolicy(self.policy),
                worker_class=worker_class,
                host=host,
                standby=standby,
                policy=failure,
                log=self.log,
            )
            made.local_gradient_worker.driver = self.driver
            return made

        try:
            self.u_worker = UWorker(
                factory,
                grad_execution=execution,
                grad_communication=communication,
                decentralized_update_execution=decentralized,
            )
        except BaseException:
            self._close_parts()
            raise

    def collect(self) -> Mapping[str, Any]:
        self.num_turns += 1
        self.rows.put(Segment(TransitionBatch({"x": np.zeros(4)}), Version(0, 0), env_steps=4))
        return {"NumberSamples": 4}

    def learn(self, turns: int) -> Run:
        for _ in range(turns):
            self.u_worker.step()
        self.u_worker.settle()
        return self

    @property
    def state(self) -> dict[str, Any]:
        return tensors_of(self.policy.learn_mode.state_dict())

    def close(self) -> None:
        self.u_worker.stop()
        self._close_parts()

    def _close_parts(self) -> None:
        self.learner.close()
        self.metrics.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def assert_close(state: Mapping[str, Any], wanted: Mapping[str, Any], *, atol: float = 2e-6) -> None:
    """Compare what two policies have learned."""
    assert state.keys() == wanted.keys()
    for path, value in wanted.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(
                state[path], value, rtol=1e-5, atol=atol, msg=lambda text, path=path: f"{path}: {text}"
            )
        else:
            assert state[path] == value, path


class Gate:
    """Barrier that holds the worker of an index in its call of a number until it is opened."""

    def __init__(self, *, index: int, call: int) -> None:
        self.index, self.call = index, call
        self.entered, self.opened = threading.Event(), threading.Event()

    def pass_through(self, index: int, call: int) -> None:
        if (index, call) == (self.index, self.call):
            self.entered.set()
            self.opened.wait(60.0)


def gated(gate: Gate) -> type[GWorker]:
    """Return a class of workers that the gate holds."""

    class Gated(GWorker):
        calls = 0

        def get_grads(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            gate.pass_through(self.index_worker, self.calls)
            return super().get_grads(*args, **kwargs)

        def of_rank(self, method: str, *args: Any) -> Any:
            if method == "train":
                self.calls += 1
                gate.pass_through(self.index_worker, self.calls)
            return super().of_rank(method, *args)

    return Gated
