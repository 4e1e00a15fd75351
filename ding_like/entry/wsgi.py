"""Give a coordinator to a WSGI server, for more workers than the built-in one answers in time.

The state is in one process, so the server is to have one worker and many threads:

    gunicorn --workers 1 --threads 16 -k gthread -b HOST:PORT \\
        "ding_like.entry.wsgi:coordinator_app(config='my_config.py', key_file='keys.json')"
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ding_like.entry.coordinator_entry import CoordinatedArguments, CoordinatedRun, plan_dist
from ding_like.errors import DingError
from ding_like.pipeline.parallel.coordinator import Coordinator
from ding_like.pipeline.parallel.coordinator_run import CoordinatorRun
from ding_like.pipeline.record import origin_of
from ding_like.report.run_console import RunConsole
from ding_like.utils.log import setup_console
from ding_like.utils.run_folder import RunFolder
from ding_like.utils.trackers import tracked

logger = logging.getLogger(__name__)


def coordinator_app(
    config: str | Path,
    *,
    key_file: str | Path,
    seed: int = 0,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
) -> object:
    """Begin a run whose workers dial in, and return the WSGI application that answers them.

    The run is watched by a thread of this process; the server goes on answering when it is over, until it is stopped.
    Raises ConfigError for a key file that is not there: who can reach the server is not known here.
    """
    setup_console(logging.INFO)
    with ExitStack() as failed:
        folder = failed.enter_context(RunFolder())
        run = plan_dist(
            config, CoordinatedArguments("dist", seed), folder, key_file=key_file, overrides=overrides,
            exp_name=exp_name,
        )  # fmt: skip
        coordinator = run.make_coordinator()
        app = coordinator.start_behind()
        failed.pop_all()  # closing the coordinator lets the folder go
    atexit.register(coordinator.close)
    threading.Thread(target=_watch, args=(run, coordinator), name="watch", daemon=True).start()
    return app


def _watch(run: CoordinatedRun, coordinator: Coordinator) -> None:
    cfg, lines = run.cfg, run.lines("of the server that was given this application")
    try:
        with RunConsole(cfg.exp_name, run.limits, opening=lines) as console, tracked(cfg) as trackers:
            trackers.follow()
            watched = CoordinatorRun(cfg, coordinator, origin=origin_of(cfg, mode="dist", source=run.arguments.source))
            result = watched.watch(console, check=lambda: None)
        logger.info("the run is over: the last model returns %g. Stop the server.", result.eval_value)
    except DingError as error:
        logger.error("%s", error)
