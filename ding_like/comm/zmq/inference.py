"""Ask inference servers: an actor thread's end of the way.

A client has one request under way. It sends it again, under the same id, when no answer came in time: the proxy gives
it to the next server. Of several answers the first counts. So a server may be lost at any moment, and nothing is acted
on twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ding_like.comm.channels import Version
from ding_like.comm.zmq.inference_messages import Refusal, Reply, Request, decode_answer, encode_request, inputs_of
from ding_like.comm.zmq.sockets import Poller, Wake, open_socket
from ding_like.errors import CommError
from ding_like.types import Array, Obs
from ding_like.utils.latency import Latency, LatencyMeter

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

_NONE: Mapping[str, Array] = {}


class InferenceClient:
    """Client of a network that runs on inference servers, for the lanes of one thread.

    `endpoint` is the proxy's side of the clients. A request is sent again after `request_timeout_s`, and given up after
    `patience_s`. `run_id` grows with every start of the client that bears `name`. `least` is the oldest version of the
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
        self._wake = Wake()
        try:
            self._socket = open_socket("dealer", connect=endpoint, keys=keys, identity=f"{name}.{run_id}")
        except BaseException:
            self._wake.close()
            raise
        self._poller = Poller(self._socket, self._wake)

    def evaluate_model(
        self, obs: Obs, columns: Mapping[str, Array] = _NONE, *, state: Mapping[str, Array] = _NONE
    ) -> Reply:
        """Return what the network computes for observations [R, O...], columns [R, ...] and state [R, S...].

        `columns` are what else it takes, noise say; `state` is what a recurrent network has before the step, and the
        reply has it after the step. Raises CommError where nobody answers for `patience_s`, where the request is
        refused, and once `stop` was called.
        """
        self._id += 1
        request = Request(self._name, self._run_id, self._id, self.least, inputs_of(obs, columns, state))
        begun_s = self._clock()
        reply = self._ask(request, deadline_s=begun_s + self._patience_s)
        if len(reply.output) != request.rows:
            raise CommError(f"{self._name} was answered {len(reply.output)} lanes in place of {request.rows}.")
        self._latency.note(self._clock() - begun_s)
        if self._oldest is None or reply.version < self._oldest:
            self._oldest = reply.version
        return reply

    def _ask(self, request: Request, *, deadline_s: float) -> Reply:
        frames, said = encode_request(request), ""
        while True:
            if not self._is_stopped.is_set():
                self._socket.send(frames)  # one that is not taken is sent again in time
            again_s = min(self._clock() + self._request_timeout_s, deadline_s)
            while True:
                answer = self._receive(request.id, until_s=again_s)
                if not isinstance(answer, Refusal):
                    break
                if answer.is_final:
                    raise CommError(f"a request of {self._name} was refused: {answer.text}")
                said = f" The last server to say something: {answer.text}"  # it may pass: ask again in time
            if answer is not None:
                return answer
            if self._clock() >= deadline_s:
                raise CommError(
                    f"no inference server answered {self._name} within {self._patience_s:g} s, asked again every "
                    f"{self._request_timeout_s:g} s: look for what ended the servers, or raise request_timeout_s if "
                    f"they are slow.{said}"
                )
            self.num_resent += 1

    def _receive(self, number: int, *, until_s: float) -> Reply | Refusal | None:
        """Return the next answer to request `number`; None: none came in time."""
        while True:
            if self._is_stopped.is_set():
                raise CommError(f"{self._name} was stopped while it waited for an inference server.")
            frames = self._socket.receive()
            if frames is None:
                left_s = until_s - self._clock()
                if left_s <= 0:
                    return None
                self._poller.wait(left_s)
                continue
            try:
                answered, answer = decode_answer(frames)
            except CommError:
                self.num_dropped += 1
                continue
            if answered == number or (answered is None and isinstance(answer, Refusal)):
                return answer
            self.num_dropped += 1

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
