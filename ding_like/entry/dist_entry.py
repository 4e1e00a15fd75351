"""Start one worker of a distributed run: a collector or a learner that dials in."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ding_like.config import compile_config, read_config
from ding_like.entry.training import check_system
from ding_like.pipeline.parallel.comm_collector import create_comm_collector
from ding_like.pipeline.parallel.comm_learner import create_comm_learner
from ding_like.pipeline.parallel.settings import read_system, serial_parts
from ding_like.pipeline.process import graceful_shutdown, training_process
from ding_like.utils.processes import coordinator_url, watch_parent
from ding_like.utils.registries import PARALLEL_COLLECTOR_REGISTRY


def launch_collector(
    config: str | Path,
    *,
    coordinator: str,
    key_file: str | Path | None,
    seed: int = 0,
    overrides: Sequence[str] = (),
    retry_s: float | None = None,
) -> None:
    """Collect and evaluate for the coordinator at a URL until the run is over.

    `retry_s` is how long it may be out of reach: by default 30 s at the start, and ten minutes later. Raises CommError
    with the cause if the worker has to give up.
    """
    found = _worker_config(config, coordinator, key_file, seed=seed, overrides=overrides, retry_s=retry_s)
    _work(create_comm_collector, found)


def launch_learner(
    config: str | Path,
    *,
    coordinator: str,
    key_file: str | Path | None,
    seed: int = 0,
    overrides: Sequence[str] = (),
    max_train_iter: float = float("inf"),
    retry_s: float | None = None,
) -> None:
    """Learn for the coordinator at a URL until the run is over, or for `max_train_iter` iterations.

    `retry_s` is how long it may be out of reach: by default 30 s at the start, and ten minutes later. Raises CommError
    with the cause if the worker has to give up.
    """
    found = _worker_config(config, coordinator, key_file, seed=seed, overrides=overrides, retry_s=retry_s)
    _work(create_comm_learner, {**found, "max_train_iter": max_train_iter})


def _worker_config(
    config: str | Path,
    coordinator: str,
    key_file: str | Path | None,
    *,
    seed: int,
    overrides: Sequence[str],
    retry_s: float | None,
) -> dict[str, Any]:
    """Return what a comm collector or learner is made from."""
    check_system("dist")
    url = coordinator_url(coordinator)
    file = read_config(config)
    main = compile_config(
        *serial_parts(file.main_config, file.create_config), seed=seed, overrides=overrides, source=str(config),
        save=False, renew_dir=False,
    )  # fmt: skip
    given = dict(file.system_config or {})
    named = {name: (file.create_config.get(name) or {}) for name in ("comm_collector", "comm_learner", "collector")}
    # A worker has only the folders that are named: its files go through the coordinator otherwise.
    kind = named["collector"].get("type")
    system = read_system({**given, "path_data": given.get("path_data") or ".", "path_policy": "."}, main)
    return {
        "main": main,
        "seed": seed,
        "coordinator": url,
        "key_file": key_file,
        "retry_s": retry_s,
        "patience_s": retry_s,
        "comm_collector_type": named["comm_collector"].get("type"),
        "comm_learner_type": named["comm_learner"].get("type"),
        # A serial collector cannot be chosen here.
        "collector_type": kind if kind in PARALLEL_COLLECTOR_REGISTRY else None,
        "import_names": [name for part in named.values() for name in part.get("import_names") or ()],
        **{name: given.get(name) for name in ("path_data", "path_policy", "communication_mode")},
        **{name: getattr(system, name) for name in ("publish_interval_s", "num_batches", "num_learners")},
        "weights": vars(system.weights),
        "config_file": str(config),
        "overrides": tuple(overrides),
    }


def _work(create: Callable[[Mapping[str, Any]], Any], cfg: Mapping[str, Any]) -> None:
    """Run a worker until the run is over, or until SIGTERM, SIGHUP or the end of its parent process shuts it down."""
    with training_process():
        worker = create(cfg)
        with graceful_shutdown(worker.stop):
            watch_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
            try:
                worker.start()
                worker.run()
            finally:
                worker.close()
