"""Name the processes of a run with central inference: the proxy, then the inference servers and the actors."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.comm.workers.child import ChildProcess
from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.supervision import Member, Post, Processes
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.seed.actor import Actor, ActorSettings, name_of
from ding_like.pipeline.seed.proxy_process import InferenceProxy
from ding_like.pipeline.seed.servers import InferenceServer, ServerSettings
from ding_like.pipeline.seed.settings import SeedSettings

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys
    from ding_like.comm.zmq.row_server import RowServer

_PROXY_SILENT_S = 5.0  # a proxy only hands messages on: it answers at once
_ENDLESS_S = float("inf")  # patience with a driver that was stopped: its end ends its children by itself
_ASK_S, _ANSWER_S = 1.0, 2.0  # the shortest time between two questions to it, and the longest for an answer


class _ProxyMember:
    """Be an inference proxy as a supervisor sees its processes: one start of it."""

    reports = None

    def __init__(self, proxy: InferenceProxy) -> None:
        self._proxy = proxy
        self._has_told = True

    def start(self) -> None:
        self._proxy.start()
        self._has_told = False

    def take_messages(self) -> Sequence[Mapping[str, Any]]:  # Any: of JSON
        """Return that it is ready, once: it was when its start returned."""
        told, self._has_told = self._has_told, True
        return [] if told else [{"kind": "ready"}]

    @property
    def pid(self) -> int | None:
        return self._proxy.pid

    @property
    def exitcode(self) -> int | None:
        return self._proxy.exitcode

    @property
    def sentinel(self) -> int:
        return self._proxy.sentinel

    def is_alive(self) -> bool:
        return self._proxy.is_alive()

    def error(self) -> Exception | None:
        return None

    def how_it_ended(self) -> str:
        return self._proxy.how_it_ended()

    def terminate(self) -> None:
        for number in (signal.SIGTERM, signal.SIGCONT):
            if self._proxy.pid is not None and self._proxy.is_alive():
                with suppress(ProcessLookupError):
                    os.kill(self._proxy.pid, number)

    def kill(self) -> None:
        self._proxy.kill()

    def release(self) -> None:
        self._proxy.stop()


class _Heard:
    """Tell when each source was heard: the proxy answers, the others talk to the driver by themselves."""

    def __init__(self, rows: RowServer, proxy: InferenceProxy) -> None:
        self._rows, self._proxy = rows, proxy
        self._asked_s = self._answered_s = float("-inf")

    def __call__(self) -> dict[str, float]:
        now_s = time.monotonic()
        if now_s - self._asked_s >= _ASK_S:
            self._asked_s = now_s
            if self._proxy.counts(timeout_s=_ANSWER_S) is not None:
                self._answered_s = time.monotonic()
        return {"proxy": self._answered_s, **{name: each.heard_s for name, each in self._rows.sources().items()}}


def seed_processes(
    factories: SchemeFactories,
    settings: SeedSettings,
    *,
    rows: RowServer,
    proxy: InferenceProxy,
    keys: SeedKeys | None = None,
    log: FailureLog | None = None,
    folder: Path | None = None,
    run_as: Callable[[ChildProcess], Member] = lambda child: child,
) -> Processes:
    """Return the processes of a run, not started: its rows go to `rows`, whose welcome says where the rest is.

    What a process prints goes to the file of its name in `folder`, by default where this one prints. `run_as`
    ChildThread runs servers and actors in threads of this process.
    """

    def output(name: str) -> Path | None:
        return None if folder is None else folder / f"{name}.txt"

    def server(number: int, attempt: int) -> Member:
        name = f"server{number}"
        made = ServerSettings(
            factories, rows.endpoint, name=name, run_id=attempt + 1, keys=keys, batchsize=settings.inference_batchsize,
            delay_s=settings.inference_delay, device=settings.inference_device,
            start_timeout_s=settings.failure.start_timeout_s, patience_s=_ENDLESS_S,
        )  # fmt: skip
        return run_as(InferenceServer(made, output=output(name)))

    def actor(number: int, attempt: int) -> Member:
        made = ActorSettings(
            factories, rows.endpoint, threads=_threads_of(number, settings.actor_threads), attempt=attempt + 1,
            keys=keys, request_timeout_s=settings.request_timeout_s, patience_s=_ENDLESS_S, failure=settings.failure,
        )  # fmt: skip
        name = f"actor_process{number}"
        return run_as(Actor(made, name=name, output=output(name)))

    servers = range(1, settings.inference_servers + 1)
    actors = range(1, settings.actor_processes + 1)
    return Processes(
        [
            [Post("proxy", lambda _: _ProxyMember(proxy), ("proxy",), silent_s=_PROXY_SILENT_S)],
            [
                *(Post(f"server{number}", partial(server, number), (f"server{number}",)) for number in servers),
                *(
                    Post(f"actor_process{number}", partial(actor, number), _names_of(number, settings.actor_threads))
                    for number in actors
                ),
            ],
        ],
        policy=settings.failure,
        log=log,
        heard=_Heard(rows, proxy),
        lost=rows.open_rows,
    )


def own_names(settings: SeedSettings) -> frozenset[str]:
    """Return the names of all sources that this machine starts."""
    servers = (f"server{number}" for number in range(1, settings.inference_servers + 1))
    return frozenset([*servers, *_names_of(1, settings.actor_processes * settings.actor_threads)])


def _threads_of(process: int, threads: int) -> tuple[int, ...]:
    """Return the numbers in the run, from 1, of the actor threads of a process."""
    return tuple(range((process - 1) * threads + 1, process * threads + 1))


def _names_of(process: int, threads: int) -> tuple[str, ...]:
    return tuple(name_of(number) for number in _threads_of(process, threads))
