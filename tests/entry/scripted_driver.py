"""The driver of a run with central inference that learns nothing: it counts rows until there are enough."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ding_like.comm.channels import Version, Weights
from ding_like.comm.keys import SeedKeys
from ding_like.comm.tensors import flatten_state
from ding_like.comm.workers.processes import ChildThread
from ding_like.comm.zmq.inference import InferenceProxy
from ding_like.comm.zmq.rows import RowServer
from ding_like.comm.zmq.sockets import tcp_endpoint
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.config import compile_config, read_config
from ding_like.pipeline.scheme_parts import SchemeFactories
from ding_like.pipeline.seed.actor import Actor, ActorSettings
from ding_like.pipeline.seed.runner import agent_config
from ding_like.pipeline.seed.servers import InferenceServer, ServerSettings

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
FIRST = Version(0, 1)


class ScriptedDriver:
    """Order rows of all actors that are there until `rows` have come; then tell all to end."""

    def __init__(
        self,
        *,
        rows: int,
        host: str = "127.0.0.1",
        port: int = 0,
        keys: SeedKeys | None = None,
        welcome: dict[str, Any] | None = None,  # Any: of JSON
    ) -> None:
        self._opened = ExitStack()
        self._enough = rows
        self._threads: list[threading.Thread] = []
        self._workers: list[ChildThread] = []
        self.came: dict[str, int] = {}  # rows by source
        self.errors: list[str] = []
        self.stop, self.is_over = threading.Event(), threading.Event()
        file = read_config(CONFIG)
        cfg = compile_config(file.main_config, file.create_config, save=False, renew_dir=False)
        self._factories = SchemeFactories.of(cfg, seed=0)
        self._weights = Broadcaster(endpoint=tcp_endpoint(host), keys=keys)
        self._opened.callback(self._weights.close)
        self._weights.start()
        state = flatten_state(self._factories.actor("cpu").collect_mode.state_dict())
        self._weights.publish(Weights("policy", FIRST, state))
        self._proxy = self._opened.enter_context(InferenceProxy(tcp_endpoint(host), tcp_endpoint(host), keys=keys))
        self._proxy.start()
        ends = {
            "clients": self._proxy.client_endpoint,
            "servers": self._proxy.server_endpoint,
            "weights": self._weights.endpoint,
            **(welcome or {}),
        }
        self.rows = RowServer(tcp_endpoint(host, port), keys=keys, welcome=ends).start()
        self._opened.callback(self.rows.close)
        self.port = int(self.rows.endpoint.rpartition(":")[2])
        self.address = f"127.0.0.1:{self.port}"
        self._keys = keys
        self._start(self._run)

    def _start(self, target: Any, *arguments: Any) -> None:  # Any: what a thread runs
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def serve(self) -> None:
        """Run an inference server of the driver's own."""
        settings = ServerSettings(self._factories, f"tcp://{self.address}", keys=self._keys)
        server = ChildThread(InferenceServer(settings))
        server.start()
        self._workers.append(server)

    def act(self) -> None:
        """Run an actor thread of the driver's own."""
        settings = ActorSettings(agent_config(self._factories), f"tcp://{self.address}", keys=self._keys)
        actor = ChildThread(Actor(settings))
        actor.start()
        self._workers.append(actor)

    def _run(self) -> None:
        while not self.stop.is_set() and sum(self.came.values()) < self._enough:
            for name, source in self.rows.sources().items():
                if source.role == "actor":
                    extra = {"least": list(FIRST)}
                    while self.rows.give(name, 16, env_step=10_000, newest=FIRST, extra=extra) is not None:
                        pass
            for arrived in self.rows.take(0.1):
                self.came[arrived.source] = self.came.get(arrived.source, 0) + len(arrived.segment.batch)
                self.rows.acknowledge(arrived)
            self.errors += [f"{source}: {text}" for source, text in self.rows.errors()]
        if not self.stop.is_set():  # else it ends without a word
            self.rows.stop_all()
            self.is_over.set()

    def close(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(20.0)
        for worker in self._workers:
            worker.terminate()
            worker.join(20.0)
            worker.release()
        self._opened.close()
        assert not any(thread.is_alive() for thread in self._threads)

    def __enter__(self) -> ScriptedDriver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
