"""Send weights to other processes of this machine through shared memory: one copy in, one copy out for each reader.

The numbers are in blocks (`shared_block.py`), which readers look at by themselves: a version is visible to all of them
once its counter is written. Sockets (`shared_messages.py`; `shared_rendezvous.py` for their place) only wake waiting
processes and carry acknowledgements. No process holds a lock that another needs: when one is killed the system closes
its sockets, and the other end sees that at once; a stopped reader costs a publisher that waits at most `wait_s`.

Why not a semaphore or a `multiprocessing.Condition`: a process killed while it holds one blocks all others for ever.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.weights.encode import Layout, WireDtype
from ding_like.comm.weights.shared_block import IS_STRONGLY_ORDERED, BlockReader, BlockWriter
from ding_like.comm.weights.shared_messages import (
    END,
    FAILED,
    MESSAGE,
    NEWS,
    TAKE,
    TAKEN,
    ReaderConnection,
    messages,
    wait_for_answers,
)
from ding_like.comm.weights.shared_rendezvous import Block, Blocks, Rendezvous
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

CLOSE_S = 5.0  # for readers to take the last version
_FOLLOW_TRIES = 3  # to attach to announced blocks that are being replaced


class SharedMemoryPublisher:
    """Publish weights as `name` for readers in any process of this user on this machine; see `WeightPublisher`.

    A name has one publisher at a time; when it is killed another may take over, and the readers follow it. A policy's
    weights take `num_buffers` times their bytes of /dev/shm: with two, a reader that copies while two more versions are
    begun has to copy again; with three it may be slower by half. `dtype` is that of `Layout.of`. `checksum` stores a
    crc32 with each version, for readers to check; None: only where the processor may reorder stores (not on x86-64).
    Both ends need the same `folder`, by default the temporary one. Readers choose their names.

    Raises CommError if the name has a living publisher.
    """

    def __init__(
        self,
        name: str,
        *,
        num_buffers: int = 3,
        dtype: WireDtype = "exact",
        checksum: bool | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if num_buffers < 2:
            raise CommError(f"num_buffers is {num_buffers}; expected 2 or more: one is read while another is written.")
        self._num_buffers = num_buffers
        self._dtype: WireDtype = dtype
        self._is_checked = not IS_STRONGLY_ORDERED if checksum is None else checksum
        self._guard = threading.Lock()
        self._blocks: dict[str, tuple[BlockWriter, Layout]] = {}  # by policy
        self._published: dict[str, Version] = {}
        self._num_sent = 0
        self._members: dict[str, ReaderConnection] = {}  # readers by address
        self._is_closed = False
        self._rendezvous = Rendezvous(name, folder)
        self._claim = self._rendezvous.claim()
        self._rendezvous.clear()
        _ENDS.add(self)

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Write weights where readers see them; see `WeightPublisher`.

        Without `wait_s` it returns at once, and a reader copies when it calls `newest`: only killed readers are known
        to fail. With it, each reader copies at once, and one that has not within `wait_s` seconds is failed. Readers
        that are not in `to` keep their version; an older one that they have not copied is lost once its buffer is
        reused.

        Raises CommError for tensors that cannot be sent, and if /dev/shm has no room: then nothing is published, and
        readers keep what they have.
        """
        with self._guard:
            if self._is_closed:
                raise CommError("weights are published after the publisher was closed.")
            before = self._published.get(weights.policy_id)
            if before is not None and weights.version <= before:
                names = self._rendezvous.readers().values() if to is None else to
                return Receipt(skipped=tuple(dict.fromkeys(names)))
            self._write(weights, to)
            self._published[weights.policy_id] = weights.version
            self._num_sent += 1
            # A reader that joins later finds the weights by itself.
            self._connect()
            return self._tell(NEWS if wait_s is None else TAKE, wait_s, to)

    def close(self) -> None:
        """Let living readers copy the last version, at most CLOSE_S, and unlink the blocks; may be called again.

        A reader that is stopped for longer keeps an older version.
        """
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._connect()
                self._tell(END, CLOSE_S)
            finally:
                for member in self._members.values():
                    member.close()
                for writer, _ in self._blocks.values():
                    writer.close()
                self._rendezvous.leave(self._claim)

    def forget(self) -> None:
        """Close a forked child's copies of what is this process's: they would outlive it."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._claim)
            for member in self._members.values():
                member.close()
            for writer, _ in self._blocks.values():
                writer.forget()

    def _write(self, weights: Weights, to: Sequence[str] | None) -> None:
        policy_id, state = weights.policy_id, weights.state
        layout = Layout.of(state, dtype=self._dtype)
        old = self._blocks.get(policy_id)
        if old is not None and old[1] == layout:
            old[0].write(weights.version, lambda body: layout.write(state, body), to=to)
            return
        # Other shapes need another block. It is announced when the version is in it, so readers are never without one.
        name = self._rendezvous.block_name()
        writer = BlockWriter(name, layout.nbytes, num_buffers=self._num_buffers, is_checked=self._is_checked)
        try:
            writer.write(weights.version, lambda body: layout.write(state, body), to=to)
            blocks = {**self._blocks, policy_id: (writer, layout)}
            self._rendezvous.announce({each: Block(block.name, laid) for each, (block, laid) in blocks.items()})
        except BaseException:
            writer.close()
            raise
        self._blocks = blocks
        if old is not None:
            old[0].close()

    def _connect(self) -> None:
        """Connect to new readers, and drop those that have left."""
        found = self._rendezvous.readers()
        for address, member in tuple(self._members.items()):
            if address not in found or member.is_unreached:
                self._members.pop(address).close()
        for address in found.keys() - self._members.keys():
            self._members[address] = ReaderConnection(found[address], address)

    def _tell(self, word: bytes, wait_s: float | None, to: Sequence[str] | None = None) -> Receipt:
        """Send a word to readers and, unless `wait_s` is None, wait for their answers."""
        members = [each for each in self._members.values() if to is None or each.name in to]
        for member in members:
            member.send(word, self._num_sent)
        unknown = [name for name in to or () if all(each.name != name for each in members)]
        if wait_s is None:
            return Receipt(failed=_names(each for each in members if each.is_lost and not each.has_left) + (*unknown,))
        wait_for_answers(members, self._num_sent, time.monotonic() + wait_s)
        delivered = [each for each in members if each.has(self._num_sent)]
        failed = [each for each in members if each not in delivered and not each.has_left]
        for member in failed:
            if not member.is_lost:
                logger.warning("reader %s of weights has not taken a version within %g s", member.name, wait_s)
        return Receipt(_names(delivered), _names(failed) + (*unknown,))


class SharedMemoryReader:
    """Read what the publisher of `name` writes; see `WeightReader`. Threads may share it.

    `reader` is its name in receipts, unique among the living readers. The publisher may start later and may be
    replaced: a reader keeps the newest version that it has read, and never returns an older one.
    """

    def __init__(self, name: str, *, reader: str, folder: str | os.PathLike[str] | None = None) -> None:
        self._rendezvous = Rendezvous(name, folder)
        self._name = reader
        self._changed = threading.Condition()
        self._announced: Blocks | None = None
        self._gone: dict[str, str] = {}  # blocks that are announced and not there, by policy
        self._attached: dict[str, _Attached] = {}  # by policy
        self._newest: dict[str, Weights] = {}
        self._num_news = 0
        self._is_closed = False
        self._listener, self._address = self._rendezvous.listen(reader)
        self._waker, self._woken = socket.socketpair()
        self._received: dict[socket.socket, bytes] = {}  # by connection of a publisher, what is no whole message yet
        self._publisher: socket.socket | None = None  # the connection that sent a message last
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()
        _ENDS.add(self)

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights of a policy, in memory of this process; see `WeightReader`.

        If the publisher is gone it waits too, for another to take over. Raises CommError for shared memory with other
        content than a publisher writes, and for announced weights whose memory is gone.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._is_closed:
                    raise CommError("weights are asked for after the reader was closed; make another reader.")
                news = self._num_news
                self._take(policy_id)
                weights = self._newest.get(policy_id)
                if weights is not None and (newer_than is None or weights.version > newer_than):
                    return weights
                left = deadline - time.monotonic()
                if left <= 0:
                    self._raise_if_gone(policy_id)
                    return None
                self._wait(news, left)

    def close(self) -> None:
        """Stop reading, so that publishers no longer count this reader, and release resources; may be called again."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._attached.clear()
            self._num_news += 1
            self._changed.notify_all()
        self._waker.send(b"e")
        self._thread.join(CLOSE_S)
        self._rendezvous.stop_listening(self._address)
        self._close_sockets()

    def forget(self) -> None:
        """Close a forked child's copies of what is this process's: they would outlive it."""
        if not self._is_closed:
            self._is_closed = True
            self._close_sockets()

    # --- under the condition

    def _wait(self, news: int, timeout_s: float) -> None:
        """Wait until `_num_news` is no longer `news`: a publisher has sent a message, or the reader was closed."""
        self._changed.wait_for(lambda: self._num_news != news, timeout_s)

    def _take(self, policy_id: str) -> bool:
        """Copy a policy's newest version if it is new; return False if the publisher overtook the copy."""
        self._follow()
        attached = self._attached.get(policy_id)
        if attached is None:
            return True
        attached.number, taken = attached.block.read(after=attached.number, reader=self._name)
        if taken is None:
            return not attached.block.has_newer(attached.number)
        before = self._newest.get(policy_id)
        if before is None or taken.version > before.version:
            self._newest[policy_id] = Weights(policy_id, taken.version, attached.layout.read(taken.body))
        return True

    def _follow(self) -> None:
        """Attach to the blocks that are announced now."""
        for _ in range(_FOLLOW_TRIES):
            said = self._rendezvous.blocks(self._announced)
            if said is None:
                self._gone = {}
            if said is None or said is self._announced:
                return
            if self._announced is not None:
                self._announced.file.close()
            self._announced = said
            self._gone = {}
            for policy_id, block in said.by_policy.items():
                self._attach(policy_id, block)
            if not self._gone:
                return
            # A block was replaced meanwhile, and there is a newer announcement; or its publisher was killed.

    def _attach(self, policy_id: str, block: Block) -> None:
        attached = self._attached.get(policy_id)
        if attached is not None and attached.block.name == block.name:
            return
        try:
            self._attached[policy_id] = _Attached(BlockReader(block.name, block.layout.nbytes), block.layout)
        except FileNotFoundError:
            self._gone[policy_id] = block.name

    def _raise_if_gone(self, policy_id: str) -> None:
        if policy_id in self._gone:
            raise CommError(
                f"weights of {policy_id!r} are announced in shared memory {self._gone[policy_id]}, which is gone: "
                "their publisher was killed. Start another."
            )

    # --- the thread's side

    def _run(self) -> None:
        # Without a deadline: it ends when `close` writes to the socket, which only this thread reads.
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._is_closed:
                for key, _ in selector.select():
                    ready = key.fileobj
                    assert isinstance(ready, socket.socket)
                    if ready is self._listener:
                        self._accept(selector)
                    elif ready is not self._woken and not self._receive(ready):
                        selector.unregister(ready)
                        self._received.pop(ready)
                        ready.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        with suppress(OSError):  # it has gone again
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._received[connection] = b""
            selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> bool:
        """Receive messages of a publisher and answer; return whether more will come."""
        try:
            received = connection.recv(1 << 16)
        except OSError:
            received = b""
        if not received:
            if connection is self._publisher:
                self._publisher = None
                logger.warning("the publisher of weights %s has ended without closing", self._rendezvous.name)
            return False
        self._publisher = connection
        heard, self._received[connection] = messages(self._received[connection] + received)
        words = {word for word, _ in heard}
        with self._changed:
            answer = self._take_all() if words & {TAKE, END} else None
            self._num_news += 1
            self._changed.notify_all()
        if answer is not None:
            with suppress(OSError):  # the publisher has ended
                connection.send(MESSAGE.pack(answer, heard[-1][1]))
        return END not in words

    def _take_all(self) -> bytes:
        """Copy the newest version of every policy; return the answer for the publisher."""
        try:
            self._follow()
            everything = [self._take(policy_id) for policy_id in tuple(self._attached)]
        except (CommError, MemoryError) as error:  # raised to the caller of `newest`, too
            logger.warning("weights cannot be taken: %s", error)
            return FAILED
        return TAKEN if all(everything) and not self._gone else FAILED

    def _close_sockets(self) -> None:
        for each in (self._listener, self._waker, self._woken, *self._received):
            each.close()
        if self._announced is not None:
            self._announced.file.close()


class _Attached:
    """Hold a block that is read, its layout, and the number of the version that was read last."""

    def __init__(self, block: BlockReader, layout: Layout) -> None:
        self.block = block
        self.layout = layout
        self.number = 0


def _names(members: Iterable[ReaderConnection]) -> tuple[str, ...]:
    return tuple(member.name for member in members)


_ENDS: weakref.WeakSet[SharedMemoryPublisher | SharedMemoryReader] = weakref.WeakSet()


def _forget_all() -> None:
    for end in tuple(_ENDS):
        end.forget()


# A forked child has copies of the sockets and the lock: with them a killed process would still seem to be alive.
os.register_at_fork(after_in_child=_forget_all)
