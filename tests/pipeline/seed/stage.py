"""What actors need around them: a driver's way of rows, weights, a proxy and a server, in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ding_like.comm.channels import Version, Weights
from ding_like.comm.tensors import state_of
from ding_like.comm.workers.processes import ChildThread
from ding_like.comm.zmq.inference import InferenceProxy
from ding_like.comm.zmq.rows import Arrived, RowServer, Source
from ding_like.comm.zmq.sockets import EndpointFolder
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.config import compile_config
from ding_like.pipeline.scheme_parts import SchemeFactories
from ding_like.pipeline.seed.runner import agent_config
from ding_like.pipeline.seed.servers import InferenceServer, ServerSettings
from tests.pipeline.seed.scripted_env import ScriptedEnv
from tests.pipeline.test_serial import make_configs
from tests.support import wait_until

SOON_S = 60.0  # a busy machine starts interpreters slowly
FIRST = Version(1, 0)


def scripted_factories(
    folder: Path, *, env: Callable[..., Any] = ScriptedEnv, manager: str = "base", **policy: Any
) -> SchemeFactories:
    """Return the factories of a small DQN on two ScriptedEnvs, which do what files in `folder` say."""
    main, create = make_configs(**{"random_collect_size": 0, "nstep": 1, **policy})
    main, create = {**main, "exp_name": str(folder / "exp")}, {**create, "env_manager": dict(type=manager)}
    cfg = compile_config(main, create, seed=0, save=False)
    return SchemeFactories.of(cfg, seed=3, env_setting=(partial(env, folder=str(folder)), [{}, {}], [{}, {}]))


class Stage:
    """Driver of a few actors, which gives orders and takes rows."""

    def __init__(self, factories: SchemeFactories, rows: RowServer, weights: Broadcaster) -> None:
        self.factories, self.rows, self.weights = factories, rows, weights
        self.agent = agent_config(factories, factories.actor())

    def publish(self, version: Version) -> None:
        """Publish the weights of a policy as it was made under a version."""
        state = state_of(self.factories.actor().collect_mode.state_dict())
        self.weights.publish(Weights("policy", version, state))

    def give(self, source: str, rows: int = 8, *, newest: Version = FIRST, env_step: int = 0) -> None:
        """Give a source an order once it takes one."""
        extra = {"least": list(newest)}
        give = partial(self.rows.give, source, rows, env_step=env_step, newest=newest, extra=extra)
        wait_until(lambda: give() is not None)

    def collect(self, source: str, rows: int = 8, **order: Any) -> Arrived:
        """Return what a source collects for an order."""
        self.give(source, rows, **order)
        return self.next()

    def next(self) -> Arrived:
        """Return what comes next, acknowledged."""
        came: list[Arrived] = []
        wait_until(lambda: bool(came) or bool(came.extend(self.rows.take(0.1)) or came))
        assert len(came) == 1
        self.rows.acknowledge(came[0])
        return came[0]

    def state(self, source: str) -> Source:
        """Return how a source stands, once it has joined."""
        wait_until(lambda: source in self.rows.sources())
        return self.rows.sources()[source]


@contextmanager
def stage(factories: SchemeFactories, *, serves: bool = True) -> Iterator[Stage]:
    """Open a stage; without `serves` requests for actions are not answered."""
    with ExitStack() as opened:
        names = opened.enter_context(EndpointFolder())
        proxy = opened.enter_context(InferenceProxy(names.endpoint("clients"), names.endpoint("servers")))
        proxy.start()
        weights = Broadcaster(endpoint=names.endpoint("weights"))
        opened.callback(weights.close)
        weights.start()
        ends = {"clients": proxy.client_endpoint, "servers": proxy.server_endpoint, "weights": weights.endpoint}
        rows = RowServer(names.endpoint("data"), welcome=ends)
        opened.callback(rows.close)
        found = Stage(factories, rows.start(), weights)
        found.publish(FIRST)
        if serves:
            server = ChildThread(InferenceServer(ServerSettings(factories, rows.endpoint)))
            server.start()
            opened.callback(end_thread, server)
        yield found


def end_thread(member: ChildThread) -> None:
    """End a member and wait until it has."""
    member.terminate()
    wait_until(lambda: not member.is_alive())
    member.release()


def kinds(messages: Sequence[Any]) -> list[str]:
    """Return the kinds of messages."""
    return [message["kind"] for message in messages]
