"""Requests of actor threads to inference servers: what is sent, the client that sends it, and the proxy between them.

| kind  | from   | head                                          | arrays                            |
|-------|--------|-----------------------------------------------|-----------------------------------|
| infer | client | id, client, run_id, least (a version or null) | obs..., columns/..., state/...    |
| reply | server | id, version                                   | output, state/... (after the step) |
| error | server | id (null: it cannot be read), text, is_final  |                                   |

A client has one request under way. It sends it again, under the same id, when no answer came in time: the proxy gives
it to the next server. Of several answers the first counts. A request of a recurrent network has the state before the
step, and the reply the state after it: servers keep nothing of a client, so that any of them can answer any request.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ding_like.comm.channels import Version, count_of, is_count, name_of, version_of
from ding_like.comm.keys import SeedKeys
from ding_like.comm.zmq import load_zmq, own_context
from ding_like.comm.zmq.sockets import Frame, Poller, Wake, decode, encode, open_socket, port_of, tcp_endpoint
from ding_like.data.batch import columns_to_obs, obs_to_columns
from ding_like.errors import CommError
from ding_like.types import Array, Obs
from ding_like.utils.measure import Latency, LatencyMeter

MAX_NBYTES = 2**28  # of the arrays of a message
OBS, COLUMNS, STATE = "obs", "columns", "state"
_MAX_NAME = 64  # characters
_NONE: Mapping[str, Array] = {}


class Request(NamedTuple):
    """Request for R lanes."""

    client: str
    run_id: int
    id: int  # of the client's requests, each higher than the one before
    least: Version | None  # the oldest weights that may answer it
    inputs: Mapping[str, Array]  # [R, ...] by the name they travel under: observations, columns and state

    @property
    def obs(self) -> Obs:
        """The observations [R, O...]."""
        obs: Obs = columns_to_obs(OBS, self.inputs)
        return obs

    @property
    def rows(self) -> int:
        """The number of lanes, R."""
        return len(next(iter(self.inputs.values())))


class Reply(NamedTuple):
    """Output of a network for R lanes, and the version of its weights."""

    output: Array  # [R, ...]
    state: Mapping[str, Array]  # [R, S...] after the step
    version: Version


class Refusal(NamedTuple):
    """Reason why a request is not answered; a final one is not worth another try."""

    text: str
    is_final: bool


def inputs_of(obs: Obs, columns: Mapping[str, Array], state: Mapping[str, Array]) -> dict[str, Array]:
    """Return observations, columns and state by the names that they travel under."""
    inputs = obs_to_columns(OBS, obs)
    for name, array in columns.items():
        inputs[f"{COLUMNS}/{name}"] = array
    for name, array in state.items():
        inputs[f"{STATE}/{name}"] = array
    return inputs


def under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays whose names begin with `prefix` and a slash, by the rest of their names."""
    start = f"{prefix}/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}


def encode_request(request: Request) -> list[Frame]:
    """Return the frames of a request: views of its arrays. Raises CommError for arrays that are not of numbers."""
    own = {"id": request.id, "client": request.client, "run_id": request.run_id, "least": request.least}
    return encode({"kind": "infer", **own}, request.inputs)


def decode_request(frames: Sequence[Frame]) -> Request:
    """Return the request that frames hold. Raises CommError for anything that `encode_request` does not make."""
    head, inputs = message = decode(frames, max_nbytes=MAX_NBYTES)
    if message.kind != "infer" or not any(name.partition("/")[0] == OBS for name in inputs):
        raise CommError(f"a message '{message.kind[:40]}' came where requests do; expected 'infer' with observations.")
    rows = next(iter(inputs.values())).shape[:1]
    for name, array in inputs.items():
        if name != OBS and not name.startswith((f"{OBS}/", f"{COLUMNS}/", f"{STATE}/")):
            raise CommError(f"a request has the array '{name[:40]}'; expected observations, columns and state.")
        if not rows or not rows[0] or array.shape[:1] != rows:
            raise CommError(f"a request has '{name[:40]}' of shape {array.shape}, expected a row for each of {rows}.")
    least = None if head.get("least") is None else version_of(head, "least")
    client = name_of(head, "client", most=_MAX_NAME)
    return Request(client, count_of(head, "run_id"), count_of(head, "id"), least, inputs)


def id_of(frames: Sequence[Frame]) -> int | None:
    """Return the id of a request that is wrong otherwise; None where it has none."""
    try:
        number = decode(frames, max_nbytes=MAX_NBYTES).head.get("id")
    except CommError:
        return None
    return number if is_count(number) else None


def encode_answer(number: int | None, answer: Reply | Refusal) -> list[Frame]:
    """Return the frames that answer request `number`; None: one that could not be read."""
    if isinstance(answer, Refusal):
        return encode({"kind": "error", "id": number, "text": answer.text[:2_000], "is_final": answer.is_final})
    arrays = {"output": answer.output, **{f"{STATE}/{name}": column for name, column in answer.state.items()}}
    return encode({"kind": "reply", "id": number, "version": answer.version}, arrays)


def decode_answer(frames: Sequence[Frame]) -> tuple[int | None, Reply | Refusal]:
    """Return (id, reply or refusal). Raises CommError for anything else."""
    head, arrays = message = decode(frames, max_nbytes=MAX_NBYTES)
    if message.kind == "error":
        number = None if head.get("id") is None else count_of(head, "id")
        return number, Refusal(str(head.get("text")), head.get("is_final") is True)
    output = arrays.get("output")
    if message.kind != "reply" or output is None or not output.ndim:
        raise CommError(f"a message '{message.kind[:40]}' came where answers do; expected an output [R, ...].")
    # Copied: the arrays of a message are read-only.
    return count_of(head, "id"), Reply(output.copy(), under(STATE, arrays), version_of(head, "version"))


class InferenceClient:
    """Client of a network that runs on inference servers, for the lanes of one thread.

    `endpoint` is the proxy's side of the clients. A request is sent again after `request_timeout_s`, and given up after
    `patience_s`. `run_id` grows with every start of the client of this `name`. `least` is the oldest version of the
    weights that may answer, which the owner sets. One thread uses a client; any may `stop` it. Source: the SEED
    trainer's document.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        name: str,
        run_id: int,
        keys: SeedKeys | None = None,
        request_timeout_s: float = 2.0,
        patience_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.least: Version | None = None
        self.num_resent = 0  # requests, each time
        self.num_dropped = 0  # answers that came twice, late, or could not be read
        self._name, self._run_id = name, run_id
        self._request_timeout_s, self._patience_s = request_timeout_s, patience_s
        self._clock = clock
        self._id = 0
        self._oldest: Version | None = None
        self._latency = LatencyMeter()
        self._is_stopped = threading.Event()
        self._socket = open_socket("dealer", connect=endpoint, keys=keys, identity=f"{name}.{run_id}")
        self._wake = Wake()
        self._poller = Poller(self._socket, self._wake)

    def evaluate_model(
        self, obs: Obs, columns: Mapping[str, Array] = _NONE, *, state: Mapping[str, Array] = _NONE
    ) -> Reply:
        """Return what the network computes for observations [R, O...], columns [R, ...] and state [R, S...].

        `columns` are what else it takes, noise say; `state` is what a recurrent network has before the step, and the
        reply has it after the step. Raises CommError where no server answers for `patience_s`, where the request is
        refused, and once `stop` was called.
        """
        self._id += 1
        request = Request(self._name, self._run_id, self._id, self.least, inputs_of(obs, columns, state))
        begun_s = self._clock()
        reply = self._ask(request, deadline_s=begun_s + self._patience_s)
        if len(reply.output) != request.rows:
            raise CommError(f"{self._name} was answered {len(reply.output)} lanes in place of {request.rows}.")
        self._latency.record(self._clock() - begun_s)
        self._oldest = min(self._oldest or reply.version, reply.version)
        return reply

    def _ask(self, request: Request, *, deadline_s: float) -> Reply:
        frames, reason = encode_request(request), ""
        while True:
            if not self._is_stopped.is_set():
                self._socket.send(frames)  # one that is not taken is sent again in time
            again_s = min(self._clock() + self._request_timeout_s, deadline_s)
            while (answer := self._receive(request.id, until_s=again_s)) is not None:
                if isinstance(answer, Reply):
                    return answer
                if answer.is_final:
                    raise CommError(f"a request of {self._name} was refused: {answer.text}")
                reason = f" The last refusal of a server: {answer.text}"  # it may pass: ask again in time
            if self._clock() >= deadline_s:
                raise CommError(
                    f"no inference server answered {self._name} within {self._patience_s:g} s, asked again every "
                    f"{self._request_timeout_s:g} s: look for what ended the servers, or raise request_timeout_s if "
                    f"they are slow.{reason}"
                )
            self.num_resent += 1

    def _receive(self, number: int, *, until_s: float) -> Reply | Refusal | None:
        """Return the next answer to request `number`; None: none came in time."""
        while not self._is_stopped.is_set():
            left_s = until_s - self._clock()
            self._poller.wait(left_s)  # first: to look for what is not there yet costs as much as a message
            frames = self._socket.receive()
            if frames is None:
                if left_s <= 0:
                    return None
                continue
            try:
                answered, answer = decode_answer(frames)
            except CommError:
                answered = -1
            if answered == number or answered is None:
                return answer
            self.num_dropped += 1
        raise CommError(f"{self._name} was stopped while it waited for an inference server.")

    def take_version(self) -> Version | None:
        """Return the oldest version of the weights that answered since the last call; None: none did."""
        oldest, self._oldest = self._oldest, None
        return oldest

    def take_latency(self) -> Latency:
        """Return how long requests took since the last call, from the first sending to the answer."""
        return self._latency.take()

    def stop(self) -> None:
        """Have `evaluate_model` raise CommError, at once and ever after; any thread may call it."""
        self._is_stopped.set()
        self._wake.wake()

    def close(self) -> None:
        """Close the socket; may be called again."""
        self._socket.close()
        self._wake.close()


_END_S = 5.0


class ProxyPorts(NamedTuple):
    """Ports of the clients' and the servers' end, 0 for ipc."""

    router_port: int
    dealer_port: int


class InferenceProxy:
    """Proxy between many clients (ROUTER) and many inference servers (DEALER), which get the requests in turn.

    ZeroMQ's own proxy does the work, in a thread without Python. It runs while there are servers: without one it would
    spin on the requests that wait. A request whose server is lost is sent again by its client, to the next server.
    Endpoints are free ports of the loopback address unless they are given. Use it with `with`. Source: the SEED
    trainer's document.
    """

    def __init__(self, clients: str | None = None, servers: str | None = None, *, keys: SeedKeys | None = None) -> None:
        self.client_endpoint = clients or tcp_endpoint("127.0.0.1")
        self.server_endpoint = servers or tcp_endpoint("127.0.0.1")
        self._keys = keys
        self._has_servers = threading.Event()
        self._is_stopped = False
        self._lock = threading.Lock()  # guards the socket that ends ZeroMQ's proxy
        self._commands: Any = None  # Any: a zmq.Socket
        self._threads: list[threading.Thread] = []

    def start(self) -> ProxyPorts:
        """Bind both ends, begin to pass messages on, and return the ports. Raises CommError where one is taken."""
        if self._threads:
            raise CommError("an inference proxy is started once; make another one.")
        zmq = load_zmq()
        # A client that is gone must not end the proxy: what is for it is dropped.
        front = open_socket(
            "router", bind=self.client_endpoint, keys=self._keys, max_frame_nbytes=MAX_NBYTES, is_mandatory=False
        )
        try:
            back = open_socket("dealer", bind=self.server_endpoint, keys=self._keys, max_frame_nbytes=MAX_NBYTES)
        except BaseException:
            front.close()
            raise
        self.client_endpoint, self.server_endpoint = front.endpoint, back.endpoint
        commands, self._commands = (own_context().socket(zmq.PAIR) for _ in range(2))
        commands.bind(f"inproc://proxy-{id(self)}")
        self._commands.connect(f"inproc://proxy-{id(self)}")
        events = back.raw.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED)
        for run, used in ((self._pass_on, (front, back, commands)), (self._follow_servers, (events,))):
            self._threads.append(threading.Thread(target=run, args=used, name="inference-proxy", daemon=True))
            self._threads[-1].start()
        return ProxyPorts(port_of(self.client_endpoint), port_of(self.server_endpoint))

    def stop(self) -> None:
        """End the threads and close the sockets; may be called again."""
        if self._threads and not self._is_stopped:
            self._is_stopped = True
            self._has_servers.set()
            self._pause()
            for thread in self._threads:
                thread.join(_END_S)
            self._commands.close(0)

    def __enter__(self) -> InferenceProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _pass_on(self, front: Any, back: Any, commands: Any) -> None:  # Any: Sockets, and a zmq.Socket
        """Run ZeroMQ's proxy while there are servers."""
        while self._has_servers.wait() and not self._is_stopped:
            load_zmq().proxy_steerable(front.raw, back.raw, None, commands)  # until `_pause`
        back.raw.disable_monitor()
        front.close()
        back.close()
        commands.close(0)

    def _follow_servers(self, events: Any) -> None:  # Any: a zmq.Socket
        """Follow which servers are connected, by the descriptors of their connections."""
        zmq = load_zmq()
        servers: set[int] = set()
        while True:
            event, connection = struct.unpack("=hi", events.recv_multipart()[0])
            if event == zmq.EVENT_MONITOR_STOPPED:
                break
            (servers.add if event == zmq.EVENT_ACCEPTED else servers.discard)(connection)
            if servers:
                self._has_servers.set()
            elif not self._is_stopped:
                self._has_servers.clear()
                self._pause()
        events.close(0)

    def _pause(self) -> None:
        """End ZeroMQ's proxy, or its next run where it does not run at the moment."""
        zmq = load_zmq()
        with self._lock, suppress(zmq.Again):  # its thread has ended
            self._commands.send(b"TERMINATE", zmq.NOBLOCK)
