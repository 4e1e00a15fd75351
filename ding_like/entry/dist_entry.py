"""Start one part of a distributed run: a coordinator, a collector or a learner that dials in."""

from __future__ import annotations

import logging
import secrets
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ding_like.comm.agent import WorkerAgent
from ding_like.comm.http_client import HttpCoordinator
from ding_like.comm.keys import load_keys
from ding_like.config import compile_config, read_config
from ding_like.pipeline.build import training_process
from ding_like.pipeline.parallel.collector_worker import CollectorWorker
from ding_like.pipeline.parallel.learner_worker import LearnerWorker
from ding_like.pipeline.parallel.settings import SystemConfig, read_system

logger = logging.getLogger(__name__)

# (config, system, coordinator, worker id) -> the worker
MakeWorker = Callable[[Any, SystemConfig, HttpCoordinator, str], Any]


def launch_collector(
    config: str | Path, *, coordinator: str, key_file: str | Path | None, seed: int = 0, overrides: Sequence[str] = ()
) -> None:
    """Collect and evaluate for the coordinator at a URL until the run is over."""
    _launch(
        "collector",
        lambda cfg, system, client, worker_id: CollectorWorker(cfg, system, client, worker_id=worker_id, seed=seed),
        config,
        coordinator=coordinator,
        key_file=key_file,
        seed=seed,
        overrides=overrides,
    )


def launch_learner(
    config: str | Path,
    *,
    coordinator: str,
    key_file: str | Path | None,
    seed: int = 0,
    overrides: Sequence[str] = (),
    max_train_iter: float = float("inf"),
) -> None:
    """Learn for the coordinator at a URL until the run is over."""
    _launch(
        "learner",
        lambda cfg, system, client, worker_id: LearnerWorker(
            cfg, system, client, worker_id=worker_id, seed=seed, max_train_iter=max_train_iter
        ),
        config,
        coordinator=coordinator,
        key_file=key_file,
        seed=seed,
        overrides=overrides,
    )


def _launch(
    role: str,
    make: MakeWorker,
    config: str | Path,
    *,
    coordinator: str,
    key_file: str | Path | None,
    seed: int,
    overrides: Sequence[str],
) -> None:
    file = read_config(config)
    cfg = compile_config(
        file.main_config,
        file.create_config,
        seed=seed,
        overrides=overrides,
        source=str(config),
        save=False,
        renew_dir=False,
    )
    system = read_system(file.system_config, cfg)
    key = None if key_file is None else load_keys(key_file)[role]
    with training_process():
        incarnation = secrets.token_hex(6)
        client = HttpCoordinator(coordinator, role=role, key=key, incarnation=incarnation)
        agent = WorkerAgent(client, role, incarnation=incarnation)
        previous = signal.signal(signal.SIGTERM, _leaver(agent))
        worker = None
        try:
            agent.register()
            worker = make(cfg, system, client, agent.worker_id)
            agent.run(worker.run)
        finally:
            signal.signal(signal.SIGTERM, previous)
            if worker is not None:
                worker.close()
            agent.close()
            client.close()


def _leaver(agent: WorkerAgent) -> Callable[[int, FrameType | None], None]:
    def leave(number: int, frame: FrameType | None) -> None:
        logger.info("leaving: %s", signal.Signals(number).name)
        agent.stop()

    return leave
