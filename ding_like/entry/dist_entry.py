"""Start one worker of a distributed run: a collector or a learner that dials in."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ding_like.config import compile_config, read_config
from ding_like.pipeline.build import training_process
from ding_like.pipeline.parallel.comm_collector import create_comm_collector
from ding_like.pipeline.parallel.comm_learner import create_comm_learner
from ding_like.pipeline.parallel.settings import read_system

logger = logging.getLogger(__name__)


def launch_collector(
    config: str | Path,
    *,
    coordinator: str,
    key_file: str | Path | None,
    seed: int = 0,
    overrides: Sequence[str] = (),
    retry_s: float = 30.0,
) -> None:
    """Collect and evaluate for the coordinator at a URL until the run is over.

    `retry_s` is how long it may be out of reach. Raises CommError with the cause if the worker has to give up.
    """
    cfg = _worker_config(config, seed=seed, overrides=overrides)
    _work(create_comm_collector, {**cfg, "coordinator": coordinator, "key_file": key_file, "retry_s": retry_s})


def launch_learner(
    config: str | Path,
    *,
    coordinator: str,
    key_file: str | Path | None,
    seed: int = 0,
    overrides: Sequence[str] = (),
    max_train_iter: float = float("inf"),
    retry_s: float = 30.0,
) -> None:
    """Learn for the coordinator at a URL until the run is over, or for `max_train_iter` iterations.

    `retry_s` is how long it may be out of reach. Raises CommError with the cause if the worker has to give up.
    """
    cfg = _worker_config(config, seed=seed, overrides=overrides)
    dial = {"coordinator": coordinator, "key_file": key_file, "retry_s": retry_s}
    _work(create_comm_learner, {**cfg, **dial, "max_train_iter": max_train_iter})


def _worker_config(config: str | Path, *, seed: int, overrides: Sequence[str]) -> dict[str, Any]:
    """Return what a comm collector or learner is made from."""
    file = read_config(config)
    main = compile_config(
        file.main_config,
        file.create_config,
        seed=seed,
        overrides=overrides,
        source=str(config),
        save=False,
        renew_dir=False,
    )
    given = dict(file.system_config or {})
    # Folders that are not named are none of a worker's: its files go through the coordinator.
    system = read_system({**given, "path_data": given.get("path_data") or ".", "path_policy": "."}, main)
    return {
        "main": main,
        "seed": seed,
        "path_data": given.get("path_data"),
        "path_policy": given.get("path_policy"),
        "communication_mode": given.get("communication_mode"),
        "publish_interval_s": system.publish_interval_s,
        "num_batches": system.num_batches,
        "num_learners": system.num_learners,
        "config_file": str(config),
        "overrides": tuple(overrides),
    }


def _work(create: Callable[[Mapping[str, Any]], Any], cfg: Mapping[str, Any]) -> None:
    """Be a worker until the run is over; SIGTERM lets it leave early."""
    with training_process():
        worker = create(cfg)
        previous = signal.signal(signal.SIGTERM, _leaver(worker))
        try:
            worker.start()
            worker.run()
        finally:
            signal.signal(signal.SIGTERM, previous)
            worker.close()


def _leaver(worker: Any) -> Callable[[int, FrameType | None], None]:
    def leave(number: int, frame: FrameType | None) -> None:
        logger.info("leaving: %s", signal.Signals(number).name)
        worker.stop()

    return leave
