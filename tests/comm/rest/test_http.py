"""The coordinator over HTTP: what it answers, what it refuses, and what a client makes of both."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ding_like
from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.rest import client as rest_client
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import HttpCoordinator
from ding_like.comm.rest.messages import RefusedError, Signer, Stamp
from ding_like.comm.rest.worker import WorkerAgent
from ding_like.errors import CommError, ConfigError
from tests.support import wait_until

KEYS = {"collector": b"c" * 32, "learner": b"l" * 32, "admin": b"a" * 32}
SECRET = "5" * 64


class Service:
    """Service that answers every message and records what was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.tasks: list[m.Task] = []
        self.fails = False
        self.secrets = {"collector-one": SECRET}
        self.last: dict[tuple[str, str], tuple[int, Any]] = {}

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: Stamp | None) -> Any:
        assert stamp is not None
        number, known = self.last.get((worker_id, stamp.channel), (0, None))
        if number == stamp.number:
            return known
        reply = getattr(self, name)(worker_id, *ids, message)
        self.last[worker_id, stamp.channel] = (stamp.number, reply)
        return reply

    def secret_of(self, worker_id: str) -> str | None:
        return self.secrets.get(worker_id)

    def _note(self, name: str, *arguments: Any) -> None:
        if self.fails:
            raise ZeroDivisionError("a fault of ours")
        self.asked.append((name, *arguments))

    def hello(self) -> m.Hello:
        return m.Hello((m.PROTOCOL,), 1, 0.0, ding_like.__version__, "run")

    def register(self, message: m.Register) -> m.Registered:
        self._note("register", message.role)
        self.secrets[f"{message.role}-{message.incarnation}"] = message.secret
        return m.Registered(f"{message.role}-{message.incarnation}", 0.05)

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply:
        self._note("heartbeat", worker_id)
        return m.HeartbeatReply((), {"p": m.PolicyVersion(1, 7, "x", 1)})

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok:
        self._note("leave", worker_id)
        return m.Ok()

    def claim(self, worker_id: str, message: m.Claim) -> m.ClaimReply:
        self._note("claim", worker_id)
        return m.ClaimReply(self.tasks.pop(0) if self.tasks else None)

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        self._note("finish_task", task_id, message.result)
        return m.EndReply(not self.tasks)

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        self._note("fail_task", task_id, message.message)
        return m.EndReply(False)

    def status(self) -> dict[str, Any]:
        return {"run": 1}

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any) -> Any:
            self._note(name, *arguments[:-1])
            raise RefusedError("unknown", f"there is no such thing for {name}")

        return ask


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def server(service: Service) -> Iterator[CoordinatorServer]:
    made = CoordinatorServer(service, KEYS)
    made.start()
    yield made
    made.close()


_made: list[HttpCoordinator] = []


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def client(server: Any, role: str = "collector", key: bytes | None = None, **kwargs: Any) -> HttpCoordinator:
    url = server if isinstance(server, str) else server.url
    _made.append(HttpCoordinator(url, role=role, key=key or KEYS[role], **kwargs))
    return _made[-1]


def worker(server: Any, **kwargs: Any) -> HttpCoordinator:
    """Return a client that has registered as collector-one."""
    made = client(server, **kwargs)
    made.register(m.Register("collector", "here", 1, ding_like.__version__, "one"))
    return made


def signed(method: str, path: str, body: bytes, *, turn: str = "") -> dict[str, str]:
    """Return the headers of a request of collector-one."""
    signer = Signer("collector", KEYS["collector"], secret=SECRET, clock=time.time)
    signer.offset_s = 0.0
    headers, _ = signer.sign(method, path, body, turn=turn or f"{secrets.token_hex(4)}:1", worker="collector-one")
    return headers


def test_messages_go_there_and_back(server: CoordinatorServer, service: Service) -> None:
    asker = client(server)
    asker.hello()

    registered = asker.register(m.Register("collector", "here", 1, ding_like.__version__, "one"))
    reply = asker.heartbeat(registered.worker_id, m.Heartbeat("idle"))
    asker.leave(registered.worker_id, m.Leave("done"))

    assert reply.policies["p"].version == 7 and asker.status() == {"run": 1}
    assert [asked[0] for asked in service.asked] == ["register", "heartbeat", "leave"]


def test_a_refusal_arrives_as_one_with_its_code(server: CoordinatorServer) -> None:
    with pytest.raises(RefusedError, match="no such thing for task_info") as caught:
        worker(server).task_info("collector-one", "t", m.TaskInfo(1, {}))

    assert caught.value.code == "unknown" and caught.value.status == 404


def test_a_fault_of_ours_is_one_answer_and_the_server_lives(server: CoordinatorServer, service: Service) -> None:
    asker = worker(server)
    service.fails = True
    with pytest.raises(RefusedError, match="its log says how") as caught:
        asker.claim("collector-one", m.Claim())
    service.fails = False

    assert caught.value.status == 500
    assert asker.claim("collector-one", m.Claim()).task is None


def test_a_host_that_others_reach_needs_keys(service: Service) -> None:
    with pytest.raises(ConfigError, match="reached from other machines: give --key-file"):
        CoordinatorServer(service, None, host="0.0.0.0")


def test_a_port_in_use_is_one_clear_error(server: CoordinatorServer, service: Service) -> None:
    port = int(server.url.rpartition(":")[2])

    with pytest.raises(CommError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
        CoordinatorServer(service, KEYS, port=port)


def test_nobody_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(rest_client, "_MIN_WAIT_S", 0.01)

    with pytest.raises(CommError, match=rf"the coordinator at {url} has not answered for 0\.1 s"):
        client(url, retry_s=0.1).hello()


def test_another_package_is_one_clear_error(
    server: CoordinatorServer, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "hello", lambda: m.Hello((m.PROTOCOL,), 1, 0.0, "9.9", "run"), raising=False)
    other = CoordinatorServer(service, KEYS)
    other.start()

    with pytest.raises(CommError, match=r"has ding_like 9\.9, this worker .*install the same version"):
        client(other).hello()
    other.close()


def test_an_empty_host_is_not_every_interface(service: Service) -> None:
    for host in ("", "\t"):
        with pytest.raises(ConfigError, match="host is empty.*every interface"):
            CoordinatorServer(service, KEYS, host=host)


def test_an_agent_does_tasks_until_the_run_is_over(server: CoordinatorServer, service: Service) -> None:
    service.tasks = [m.Task(f"t{number}", 1, "collect", "b", "p", {"x": number}) for number in range(3)]
    agent = WorkerAgent(client(server), "collector", incarnation="one")
    agent.register()

    agent.run(lambda task, handle: {"x": task.cfg["x"]})
    agent.close()

    finished = [asked[1:] for asked in service.asked if asked[0] == "finish_task"]
    assert finished == [(f"t{number}", {"x": number}) for number in range(3)]
    assert service.asked[-1] == ("leave", "collector-one")


def test_an_agent_tells_of_a_failure_and_raises_it(server: CoordinatorServer, service: Service) -> None:
    service.tasks = [m.Task("t", 1, "collect", "b", "p", {})]
    agent = WorkerAgent(client(server), "collector", incarnation="one")
    agent.register()

    def fail(task: m.Task, handle: Any) -> dict[str, Any]:
        raise ValueError("the env is broken")

    with pytest.raises(ValueError, match="the env is broken"):
        agent.run(fail)
    agent.close()

    assert ("fail_task", "t", "ValueError: the env is broken") in service.asked
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_heartbeats_bring_news_to_a_task(server: CoordinatorServer, service: Service) -> None:
    service.tasks = [m.Task("t", 1, "collect", "b", "p", {})]
    agent = WorkerAgent(client(server), "collector", incarnation="one")
    agent.register()

    def wait_for_news(task: m.Task, handle: Any) -> dict[str, Any]:
        wait_until(lambda: handle.newest_policy is not None, "a heartbeat")
        return {"version": handle.newest_policy.version}

    agent.run(wait_for_news)
    agent.close()

    assert ("finish_task", "t", {"version": 7}) in service.asked
