"""Exchange messages between a publisher and the readers of shared memory: new version, copy it now, copied.

They go through sockets, the weights do not. A message is a word, and the number of versions the publisher has sent.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterable

logger = logging.getLogger(__name__)

MESSAGE = struct.Struct("<cQ")
NEWS, TAKE, END = b"n", b"t", b"e"  # from a publisher; a reader answers the last two
TAKEN, FAILED = b"t", b"f"


class ReaderConnection:
    """Hold the publisher's end of a connection to one reader; no method waits."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.is_lost = False  # the other end has closed the connection
        self.has_left = False  # ... in `close`; a reader that is killed leaves its socket's file behind
        self._address = address
        self.is_unreached = False  # it is alive, and its backlog is full: to be tried again
        self._taken = 0  # number of the last version that it has copied
        self._failed = 0  # number of the last version that it could not copy
        self._received = b""
        self._unsent = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        try:
            self.socket.connect(address)
        except BlockingIOError:
            self.is_lost = self.is_unreached = True
            self.socket.close()
        except OSError:  # the reader no longer listens
            self._lose()

    def has(self, number: int) -> bool:
        """Tell whether the reader has acknowledged version `number` or a later one."""
        return self._taken >= number

    def has_answered(self, number: int) -> bool:
        """Tell whether there is nothing to wait for: the version was copied, could not be, or the reader is lost."""
        return self.is_lost or max(self._taken, self._failed) >= number

    def send(self, word: bytes, number: int) -> None:
        """Send a word without waiting; where the socket has no room, `flush` sends words that need an answer.

        NEWS is dropped then: a reader with hundreds of unread messages looks at the block when it reads the last.
        """
        self._unsent = MESSAGE.pack(word, number)
        self.flush()
        if word == NEWS:
            self._unsent = b""

    @property
    def events(self) -> int:
        """Return what to wait for: messages of the reader, and room for an unsent one."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def flush(self) -> None:
        """Send the unsent message, if the socket has room now."""
        if self.is_lost or not self._unsent:
            return
        try:
            if self.socket.send(self._unsent) != MESSAGE.size:
                self._lose()
            self._unsent = b""
        except BlockingIOError:
            pass
        except OSError:
            self._lose()

    def receive(self) -> None:
        """Receive the answers of the reader."""
        try:
            received = self.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._lose()
        found, self._received = messages(self._received + received)
        for word, number in found:
            if word == TAKEN:
                self._taken = max(self._taken, number)
            else:
                self._failed = max(self._failed, number)

    def close(self) -> None:
        """Close the connection; may be called again."""
        self.socket.close()

    def _lose(self) -> None:
        self.is_lost = True
        self.has_left = not os.path.exists(self._address)
        self.socket.close()
        if not self.has_left:
            logger.warning("reader %s of weights has ended without closing", self.name)


def messages(received: bytes) -> tuple[list[tuple[bytes, int]], bytes]:
    """Return the complete messages, and the bytes of an incomplete one."""
    end = len(received) // MESSAGE.size * MESSAGE.size
    return list(MESSAGE.iter_unpack(received[:end])), received[end:]


def wait_for_answers(members: Iterable[ReaderConnection], number: int, deadline: float) -> None:
    """Return when all members have answered or are lost, or the deadline has passed."""
    waiting = {each for each in members if not each.has_answered(number)}
    with selectors.DefaultSelector() as selector:
        for member in waiting:
            selector.register(member.socket, member.events, member)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for key, events in selector.select(left):
                member = key.data
                if events & selectors.EVENT_READ:
                    member.receive()
                member.flush()
                if member.has_answered(number):
                    selector.unregister(key.fileobj)
                    waiting.discard(member)
                elif key.events != member.events:
                    selector.modify(key.fileobj, member.events, member)
