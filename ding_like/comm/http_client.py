"""Ask a coordinator over HTTP; looks like the CoordinatorService that it asks."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import requests
from requests.adapters import HTTPAdapter

import ding_like
from ding_like.comm import messages as m
from ding_like.comm.keys import sign
from ding_like.comm.refusal import STATUS, RefusedError
from ding_like.comm.wire import decode, encode, from_plain
from ding_like.errors import CommError

M = TypeVar("M")

_CONNECT_S = 2.0
_READ_S = 3.0  # beyond the time that the answer may wait
_FILE_S = 30.0
_JSON = "application/json"
_MIN_WAIT_S, _MAX_WAIT_S = 0.1, 2.0
_HURRY_S = 5.0  # for what is still to be said by a worker that ends
_HURRIED = threading.Event()  # never set: to wait with


class _TryAgainError(CommError):
    """Say that a request may work a little later."""


class HttpCoordinator:
    """Send messages to the coordinator at `url`, signed with the key of a role, trying again for `retry_s`.

    Raises RefusedError for what the coordinator refuses, CommError if it cannot be reached. Threads may share one.
    """

    def __init__(self, url: str, *, role: str, key: bytes | None, incarnation: str, retry_s: float = 30.0) -> None:
        self._url = url.rstrip("/")
        self._role = role
        self._key = key
        self._incarnation = incarnation
        self._retry_s = retry_s
        self._hurry = threading.Event()
        self._own = threading.local()  # a connection is one thread's
        self._sessions: list[requests.Session] = []
        self._offset_s = 0.0  # the coordinator's clock minus ours
        self._seq_lock = threading.Lock()
        self._seq = 0

    def hello(self) -> m.Hello:
        """Return who answers, after taking its clock. Raises CommError for another protocol or package."""
        found = self._ask("GET", "/v1/hello", None, m.Hello)
        self._offset_s = found.server_time - time.time()
        if m.PROTOCOL not in found.protocols:
            raise CommError(
                f"the coordinator at {self._url} speaks protocol {found.protocols}, this worker {m.PROTOCOL}: "
                "install the same version of ding_like on both."
            )
        if found.package != ding_like.__version__:
            raise CommError(
                f"the coordinator at {self._url} has ding_like {found.package}, this worker {ding_like.__version__}: "
                "install the same version on both."
            )
        return found

    def register(self, message: m.Register) -> m.Registered:
        return self._ask("POST", "/v1/workers", message, m.Registered)

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply:
        return self._ask("POST", f"/v1/workers/{worker_id}/heartbeat", message, m.HeartbeatReply, worker=worker_id)

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok:
        return self._ask("DELETE", f"/v1/workers/{worker_id}", message, m.Ok, worker=worker_id)

    def claim(self, worker_id: str, message: m.Claim) -> m.ClaimReply:
        return self._ask("POST", "/v1/tasks/claim", message, m.ClaimReply, worker=worker_id)

    def send_data(self, worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply:
        return self._ask("POST", f"/v1/tasks/{task_id}/data", message, m.SendDataReply, worker=worker_id)

    def task_info(self, worker_id: str, task_id: str, message: m.TaskInfo) -> m.TaskInfoReply:
        return self._ask("POST", f"/v1/tasks/{task_id}/info", message, m.TaskInfoReply, worker=worker_id)

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        return self._ask("POST", f"/v1/tasks/{task_id}/finish", message, m.EndReply, worker=worker_id)

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        return self._ask("POST", f"/v1/tasks/{task_id}/fail", message, m.EndReply, worker=worker_id)

    def sample(self, worker_id: str, buffer_id: str, message: m.Sample) -> m.SampleReply:
        return self._ask("POST", f"/v1/buffers/{buffer_id}/sample", message, m.SampleReply, worker=worker_id)

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.UpdateReply:
        return self._ask("POST", f"/v1/buffers/{buffer_id}/update", message, m.UpdateReply, worker=worker_id)

    def publish(self, worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
        return self._ask("POST", f"/v1/policies/{policy_id}", message, m.Ok, worker=worker_id)

    def status(self) -> dict[str, Any]:
        return self._ask("GET", "/v1/status", None, dict[str, Any])

    def put_file(self, path: str, data: bytes) -> None:
        """Bring a file to the coordinator, under a path of its file routes."""
        self._repeat(lambda: self._request("PUT", path, data, _FILE_S, {m.SHA256_HEADER: _sha256(data)}, m.OCTETS))

    def get_file(self, path: str) -> bytes:
        """Fetch a file from the coordinator."""
        return self._repeat(lambda: self._request("GET", path, b"", _FILE_S, {}, m.OCTETS))

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._sessions:
            session = self._sessions.pop()
            # A session only lets go of its pools, which stay open as long as an error's traceback knows them.
            adapter = session.get_adapter(self._url)
            pools = adapter.poolmanager.pools if isinstance(adapter, HTTPAdapter) else {}
            for key in pools.keys():
                pools[key].close()
            session.close()

    def _ask(self, method: str, path: str, message: Any, reply: type[M], *, worker: str = "") -> M:
        """Send one message; a repetition keeps its number."""
        body = b"" if message is None else encode(message)
        with self._seq_lock:
            self._seq += 1
            seq = self._seq
        headers = {}
        if worker:
            headers = {"X-DL-Worker": worker, "X-DL-Incarnation": self._incarnation, "X-DL-Seq": str(seq)}
        wait_s = _READ_S + float(getattr(message, "wait_s", 0.0))
        return decode(reply, self._repeat(lambda: self._request(method, path, body, wait_s, headers, _JSON)))

    def be_patient(self, retry_s: float) -> None:
        """Try again for another time than until now, where the coordinator does not answer."""
        self._retry_s = retry_s

    def hurry(self) -> None:
        """Give up soon from now on, requests under way included: this worker is to end. For any thread."""
        self._hurry.set()

    def _repeat(self, send: Callable[[], bytes]) -> bytes:
        """Send a request, again and again while that may help, after random waits: many workers must not come at once.

        Waits are up to 0.1 s at first and 2 s in the end.
        """
        started_s, most_s = time.monotonic(), _MIN_WAIT_S
        while True:
            try:
                return send()
            except _TryAgainError as error:
                retry_s = min(self._retry_s, _HURRY_S) if self._hurry.is_set() else self._retry_s
                left_s = started_s + retry_s - time.monotonic()
                if left_s <= 0:
                    raise CommError(
                        f"the coordinator at {self._url} has not answered for {retry_s:g} s: {error}. See that it "
                        "runs and that this host reaches it."
                    ) from error
            most_s = min(2 * most_s, _MAX_WAIT_S)
            wait_s = min(random.uniform(_MIN_WAIT_S / 2, most_s), left_s)
            if not self._hurry.wait(wait_s):
                continue
            _HURRIED.wait(min(_MIN_WAIT_S, left_s))  # the wait that was cut short

    def _request(
        self, method: str, path: str, body: bytes, wait_s: float, extra: Mapping[str, str], content_type: str
    ) -> bytes:
        """Send one request, signed, and return the body of its answer."""
        headers = {"Content-Type": content_type, "X-DL-Protocol": str(m.PROTOCOL), **extra}
        if self._key is not None:
            headers["Authorization"] = sign(
                self._key, self._role, method, path, body, now_s=time.time() + self._offset_s
            )
        try:
            response = self._my_session().request(
                method,
                self._url + path,
                data=body,
                headers=headers,
                timeout=(_CONNECT_S, wait_s),
                allow_redirects=False,
            )
        except requests.RequestException as error:  # unreachable, too slow, or gone in the middle of its answer
            raise _TryAgainError(_reason(error)) from error
        if response.status_code == 200:
            return response.content
        raise _refusal_of(response)

    def _my_session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._own, "session", None)
        if session is None:
            session = requests.Session()
            session.trust_env = False  # no proxies: a coordinator is asked directly
            self._own.session = session
            self._sessions.append(session)
        return session


def _reason(error: BaseException) -> str:
    """Return why a request failed, without the layers that the libraries wrap around it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        inner = seen.__cause__ or seen.__context__ or getattr(seen, "reason", None)
        inner = inner or next((each for each in seen.args if isinstance(each, BaseException)), None)
        if inner is None:
            break
        seen = inner
    return str(seen) or type(error).__name__


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refusal_of(response: requests.Response) -> CommError:
    try:
        error = from_plain(m.ErrorReply, response.json()).error
    except (ValueError, RefusedError):
        return CommError(f"the coordinator answered with status {response.status_code} and no reason.")
    if error.code not in STATUS:
        return CommError(f"the coordinator refused for an unknown reason: {error.message}")
    if error.retryable:
        return _TryAgainError(error.message)
    return RefusedError(error.code, error.message, retry_after_s=error.retry_after_s, details=error.details)
