"""Join a run: say hello to its driver, hear where everything is, and tell it numbers and failures."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ding_like.comm.json_fields import MAX_TEXT, plain_of, text_of
from ding_like.comm.zmq.frames import Message, decode, encode
from ding_like.comm.zmq.row_messages import MAX_NBYTES, PROTOCOL
from ding_like.comm.zmq.sockets import Poller, open_socket, reached_by
from ding_like.errors import CommError
from ding_like.types import Array

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

_QUEUE = 16  # messages that wait while there is no connection; what is lost is said again


class DataLink:
    """Link of a source to its run's driver, at the data endpoint; one thread uses it.

    A source that is started again under its `name` has a later `run_id`. What is not answered is said again after
    `timeout_s`; a driver that is silent for `patience_s` while something is wanted of it is held to be lost, and
    CommError says so. A driver that was started again gets a new hello.
    """

    role: ClassVar[str] = "server"

    def __init__(
        self,
        endpoint: str,
        *,
        name: str,
        run_id: int,
        keys: SeedKeys | None = None,
        timeout_s: float = 2.0,
        patience_s: float = 60.0,
    ) -> None:
        self.name = name
        self.run_id = run_id
        self.welcome: Mapping[str, Any] = {}  # Any: of JSON
        self.num_joined = 0  # drivers, one after another
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._instance = secrets.token_hex(8)
        self._session = ""
        self._is_joined = False
        self._is_stopped = False
        self._is_noted = False  # what failed
        self._refusal = ""
        self.was_refused = False
        self._said_s = 0.0  # when something was heard last, or said again
        self._urged_s: float | None = None  # since when nothing has answered
        self._socket = open_socket("dealer", connect=endpoint, keys=keys, hwm=_QUEUE)
        self._poller = Poller(self._socket)

    def join(self) -> Mapping[str, Any]:
        """Say hello until the driver answers; return what it says: where everything is, as plain JSON.

        Raises CommError with the driver's reason where it refuses, and if it does not answer within `patience_s`.
        """
        if not self._is_joined:
            self._urge()
        while not self._wait_for(lambda: self._is_joined, self._patience_s):
            pass
        return self.welcome

    def send_stats(self, stats: Mapping[str, Any]) -> None:
        """Tell numbers, as plain JSON; those that get lost are not told again."""
        self._send("stats", stats=dict(stats))

    def send_error(self, text: str) -> bool:
        """Tell what has failed, before the end; return whether the driver has noted it within `timeout_s`."""
        self._is_noted = False
        try:
            if not self._wait_for(lambda: self._is_joined, 0.0):
                self._urge()
                self._wait_for(lambda: self._is_joined, self._timeout_s)
            self._send("error", text=text[:MAX_TEXT])
            return self._wait_for(lambda: self._is_noted, self._timeout_s)
        except CommError:  # what has failed is worse
            return False

    @property
    def stopped(self) -> bool:
        """Tell whether the driver has said that nothing is wanted any more; reads what has come, and never waits."""
        self._wait_for(lambda: True, 0.0)
        return self._is_stopped

    def close(self) -> None:
        """Close the socket; may be called again."""
        self._socket.close()

    # --- what is the same for all sources

    def _wait_for(self, is_due: Callable[[], bool], timeout_s: float) -> bool:
        """Take in what comes until it is due, for at most `timeout_s`; tell whether it is."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._take_in()
            now = time.monotonic()
            if is_due() or now >= deadline:
                return is_due()
            if now - self._said_s >= self._timeout_s:
                self._urge()
            self._poller.wait(min(deadline, self._said_s + self._timeout_s) - now)

    def _take_in(self) -> None:
        while (frames := self._socket.receive()) is not None:
            self._said_s, self._urged_s = time.monotonic(), None
            try:
                message = decode(frames, max_nbytes=MAX_NBYTES)
                self._handle(message)
            except CommError as error:
                raise CommError(f"the driver at {self._socket.endpoint} sends nonsense: {error}") from error
            if self._refusal:
                refusal, self._refusal, self.was_refused = self._refusal, "", True
                raise CommError(refusal)

    def _handle(self, message: Message) -> None:
        """Take one message in."""
        head, kind = message.head, message.kind
        if kind == "welcome":
            if not self._is_joined and head.get("instance") == self._instance:
                self._session = text_of(head, "session")
                self.welcome = {
                    name: reached_by(each, self._socket.endpoint) if isinstance(each, str) else each
                    for name, each in plain_of(head, "welcome").items()
                }
                self._is_joined, self.num_joined = True, self.num_joined + 1
        elif kind == "unknown":
            # A driver that was started again. Whoever says hello to it is another than the one that it may know.
            if self._is_joined and head.get("session") != self._session:
                self._is_joined, self._instance = False, secrets.token_hex(8)
                self._forget()
                self._urge()
        elif kind == "refused" and head.get("run_id") == self.run_id:
            self._refusal = f"{self.name} (run {self.run_id}) cannot join: {text_of(head, 'reason')}."
        elif kind == "stop":
            self._is_stopped = True
        elif kind == "noted":
            self._is_noted = True

    def _forget(self) -> None:
        """Forget what a driver has said that is no longer there."""

    def _urge(self) -> None:
        """Say again what is to be answered. Raises CommError if nothing has been for `patience_s`."""
        now = time.monotonic()
        self._urged_s = now if self._urged_s is None else self._urged_s
        if now - self._urged_s >= self._patience_s:
            raise CommError(
                f"the driver of the run has not answered {self.name} at {self._socket.endpoint} for "
                f"{self._patience_s:g} s: it has ended, cannot be reached from here, or this key is not listed in its "
                "key file."
            )
        self._said_s = now
        if self._is_joined:
            self._say_again()
        else:
            self._send("hello", role=self.role, protocol=PROTOCOL)

    def _say_again(self) -> None:
        self._send("ask", have=0)

    def _send(self, kind: str, arrays: Mapping[str, Array] | None = None, /, **fields: Any) -> None:
        self._socket.send(encode({"kind": kind, **self._sender(), **fields}, arrays))

    def _sender(self) -> dict[str, Any]:
        return {"name": self.name, "run_id": self.run_id, "instance": self._instance}
