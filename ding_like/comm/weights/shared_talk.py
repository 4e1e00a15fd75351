"""Let a publisher and the readers of shared memory talk through sockets: there are news, take them, they are taken.

Weights do not go this way. A message is a word, and how many versions its publisher has sent.
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
NEWS, TAKE, END = b"n", b"t", b"e"  # of a publisher; to the last two a reader answers
TAKEN, FAILED = b"t", b"f"


class ReaderConnection:
    """Be the publisher's end of a connection to one reader; nothing here waits."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.is_lost = False  # the connection is closed, from the other end
        self.has_left = False  # ... by a reader that said so; one that is killed leaves its socket's name behind
        self._address = address
        self.is_unreached = False  # it is alive, and too many want to speak to it: to be tried again
        self._taken = 0  # after so many versions it had the newest
        self._failed = 0  # after so many it could not take the newest
        self._received = b""
        self._unsent = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        try:
            self.socket.connect(address)
        except BlockingIOError:
            self.is_lost = self.is_unreached = True
            self.socket.close()
        except OSError:  # nobody listens there any more
            self._lose()

    def has(self, number: int) -> bool:
        """Tell whether the reader has said that it took what there was after `number` versions."""
        return self._taken >= number

    def has_answered(self, number: int) -> bool:
        """Tell whether there is nothing to wait for: it has it, cannot have it, or is lost."""
        return self.is_lost or max(self._taken, self._failed) >= number

    def send(self, word: bytes, number: int) -> None:
        """Send a word without waiting; one that is to be answered goes out by `flush` where there is no room yet.

        News need not: a reader that has not read hundreds of them looks again when it reads the last.
        """
        self._unsent = MESSAGE.pack(word, number)
        self.flush()
        if word == NEWS:
            self._unsent = b""

    @property
    def events(self) -> int:
        """Return what to wait for: what the reader says, and room for what it is to be told."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def flush(self) -> None:
        """Send what could not be sent yet, if there is room now."""
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
        """Take in what the reader has said."""
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
    """Return the whole messages, and the rest."""
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
