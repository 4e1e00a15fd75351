"""Ask inference servers, an actor thread's end of the way.

A client has one request under way. It sends it again, under the same id, when no answer came in time: the proxy gives
it to whichever server is there, and a server that has answered it before gives the same answer. Of several answers the
first counts. So a server may be lost at any moment, and nothing is acted on twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ding_like.comm.channels import Version
from ding_like.comm.zmq.frames import Frame
from ding_like.comm.zmq.inference_messages import Refusal, Reply, Request, decode_answer, encode_request, inputs_of
from ding_like.comm.zmq.proxy import MAX_FRAMES
from ding_like.comm.zmq.sockets import Poller, Wake, open_socket
from ding_like.errors import CommError
from ding_like.types import Array, Obs
from ding_like.utils.latency import Latency, LatencyMeter

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

_NO_STATE: dict[str, Array] = {}


class InferenceClient:
    """Reach a network that runs on inference servers, for the lanes of one thread.

    `endpoint` is the proxy's side of the clients. A request is sent again after `request_timeout_s`, and given up after
    `patience_s`. `run_id` grows with every start of what bears `name`. `least` is the oldest version of the weights
    that may answer, which the owner sets. One thread uses a client; any may `stop` it.
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
        self._follows = ""
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

    def infer(
        self,
        obs: Obs,
        columns: Mapping[str, Array],
        *,
        lanes: Array,
        is_first: Array,
        state: Mapping[str, Array] = _NO_STATE,
    ) -> Reply:
        """Return what the network says of observations [R, O...] and columns [R, ...], with its state after the step.

        `state` [R, S...] is what a recurrent network has before the step; it is sent where the server lacks it. Raises
        CommError where nobody answers for `patience_s`, where the request is refused, and once `stop` was called.
        """
        self._id += 1
        request = Request(
            self._name,
            self._run_id,
            self._id,
            self.least,
            self._follows,
            inputs_of(obs, columns),
            np.asarray(lanes, np.int64) if state else None,
            np.asarray(is_first, np.bool_) if state else None,
            _NO_STATE,
        )
        begun_s = self._clock()
        server, reply = self._ask(request, state, deadline_s=begun_s + self._patience_s)
        if len(reply.output) != request.rows:
            raise CommError(f"{server} answered {len(reply.output)} lanes in place of {request.rows}.")
        self._latency.note(self._clock() - begun_s)
        self._follows = server
        if self._oldest is None or reply.version < self._oldest:
            self._oldest = reply.version
        return reply

    def _ask(self, request: Request, state: Mapping[str, Array], *, deadline_s: float) -> tuple[str, Reply]:
        """Return (the server's name, its reply)."""
        frames, said = _frames_of(request), ""
        while True:
            if not self._is_stopped.is_set():
                self._socket.send(frames)  # one that is not taken is sent again in time
            again_s = min(self._clock() + self._request_timeout_s, deadline_s)
            found = self._wait(request, until_s=again_s)
            if isinstance(found, Refusal):  # before tuples: it is one
                said = f" The last server to say something: {found.text}"
                self._wait_on(again_s)
            elif found is not None:
                return found
            if self._clock() >= deadline_s:
                raise CommError(
                    f"no inference server answered {self._name} within {self._patience_s:g} s, asked again every "
                    f"{self._request_timeout_s:g} s: look for what ended the servers, or raise request_timeout_s if "
                    f"they are slow.{said}"
                )
            # Once more, with the state: another server may get it, or this one asks for it.
            if state and not request.state:
                request = request._replace(state=state)
                frames = _frames_of(request)
            self.num_resent += 1

    def _wait(self, request: Request, *, until_s: float) -> tuple[str, Reply] | Refusal | None:
        """Return the answer to a request; None: it has to be sent again."""
        while True:
            self._raise_if_stopped()
            frames = self._socket.receive()
            if frames is None:
                left_s = until_s - self._clock()
                if left_s <= 0:
                    return None
                self._poller.wait(left_s)
                continue
            try:
                number, server, answer = decode_answer(frames)
            except CommError:
                self.num_dropped += 1
                continue
            if isinstance(answer, Refusal) and number in (request.id, None):
                if answer.is_final:
                    raise CommError(f"a request of {self._name} was refused: {answer.text}")
                return answer
            if number == request.id and isinstance(answer, Reply):
                return server, answer
            if number == request.id and answer is None and not request.state:
                return None  # the server lacks the state
            self.num_dropped += 1

    def _wait_on(self, until_s: float) -> None:
        """Wait after a refusal that may pass."""
        while (left_s := until_s - self._clock()) > 0:
            self._raise_if_stopped()
            if self._socket in self._poller.wait(left_s) and self._socket.receive() is not None:
                self.num_dropped += 1

    def _raise_if_stopped(self) -> None:
        if self._is_stopped.is_set():
            raise CommError(f"{self._name} was stopped while it waited for an inference server.")

    def forget(self) -> None:
        """Let servers forget the recurrent state of all lanes: the next request brings it."""
        self._id += 1  # a request is missing, so that what a server has cannot be what this goes on from

    def take_version(self) -> Version | None:
        """Return the oldest version of the weights that answered since this was called last; None: nobody did."""
        oldest, self._oldest = self._oldest, None
        return oldest

    def take_latency(self) -> Latency:
        """Return how long requests took since this was called last, from the first sending to the answer."""
        return self._latency.take()

    def stop(self) -> None:
        """Have `infer` raise CommError, at once and ever after; any thread may call it."""
        self._is_stopped.set()
        self._wake.wake()

    def close(self) -> None:
        """Close the socket; may be called again."""
        self._socket.close()
        self._wake.close()


def _frames_of(request: Request) -> list[Frame]:
    frames = encode_request(request)
    if len(frames) > MAX_FRAMES:
        raise CommError(
            f"a request has {len(frames)} arrays, of which at most {MAX_FRAMES} are passed on: observe fewer entries "
            f"(env.wrappers=[dict(type='FlattenObservation')]). They are {', '.join(request.inputs)[:400]}."
        )
    return frames
