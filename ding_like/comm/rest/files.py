"""Files of a parallel run: segments and weights in common folders, or sent through the coordinator."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import shutil
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ding_like.comm.rest.http_client import HttpCoordinator
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import check_id
from ding_like.comm.weights.delta import apply_delta, is_delta
from ding_like.comm.weights.files import WeightsGoneError
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError
from ding_like.utils.files import atomic_write
from ding_like.utils.full_disk import when_there_is_room
from ding_like.utils.own_folder import make_own_folder
from ding_like.utils.regular_file import read_regular_file

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def read_below(folder: Path, names: tuple[str, ...], *, limit: int) -> bytes | None:
    """Return the bytes of `folder/names...`; None if there is no such file, or none that may be read."""
    try:
        with _open_folder(folder, names[:-1], make=False) as parent:
            descriptor = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        # No such file; a link instead of a file or a folder; a file instead of a folder; a socket.
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            return None
        raise
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > limit:
            return None
        data = file.read(limit + 1)  # it may grow while it is read
    return data if len(data) <= limit else None


def write_below(folder: Path, names: tuple[str, ...], data: bytes) -> None:
    """Make `folder/names...` hold `data`, whole or not at all. Missing folders are made.

    Raises OSError, also for a link in the place of a folder.
    """
    with _open_folder(folder, names[:-1], make=True) as parent:
        temporary = f".{names[-1]}.{secrets.token_hex(4)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=parent), "wb") as file:
                file.write(data)
            os.replace(temporary, names[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            try:
                os.unlink(temporary, dir_fd=parent)
            except FileNotFoundError:  # it has its name already, or was never made
                pass
            raise


@contextmanager
def _open_folder(folder: Path, names: tuple[str, ...], *, make: bool) -> Iterator[int]:
    """Yield a descriptor of a folder below `folder`, which may itself be a link: its owner named it."""
    if make:
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, _FOLDER)
    try:
        for name in names:
            if make:
                try:
                    os.mkdir(name, dir_fd=descriptor)
                except FileExistsError:
                    pass
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


logger = logging.getLogger(__name__)

_MEMORY = Path("/dev/shm")


class SharedFiles:
    """Folders of segments and weights that all processes of a run see: there is nothing to transfer."""

    def __init__(self, segments: Path, weights: Path) -> None:
        self.segments = segments
        self.weights = weights

    def share_segment(self, name: str) -> None:
        """Let other processes read a segment that was written."""

    def share_weights(self, policy_id: str, attempt: int, version: int) -> None:
        """Let other processes read weights that were written."""

    def fetch_segment(self, name: str, *, nbytes: int, sha256: str) -> None:
        """Bring a segment that will be read."""

    def fetch_weights(self, policy_id: str, attempt: int, version: int, *, nbytes: int, sha256: str) -> None:
        """Bring weights that will be read. Raises WeightsGoneError if they are not kept any more."""

    def forget_segment(self, name: str) -> None:
        """Delete this process's own copy of a segment."""

    def close(self) -> None:
        """Delete all copies."""


class StreamedFiles(SharedFiles):
    """Files that travel through the coordinator, by way of a temporary folder of this process's own."""

    def __init__(
        self, client: HttpCoordinator, *, folder: str | os.PathLike[str] | None = None, asks_for_delta: bool = False
    ) -> None:
        """Make the folder: below `folder`, else in memory where the system has such a place.

        With `asks_for_delta` the coordinator is told which version of weights is here, and may answer with what has
        changed since.
        """
        self._client = client
        self._asks_for_delta = asks_for_delta
        where = folder or (_MEMORY if _MEMORY.is_dir() else None)
        self._folder = make_own_folder("ding-files-", where=where)
        self._clean = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        super().__init__(self._folder / "segments", self._folder / "weights")
        self._held: dict[str, tuple[int, int]] = {}  # version of the weights that are here, one of a policy

    def share_segment(self, name: str) -> None:
        path = self._segment(name)
        self._client.put_file(f"/v1/segments/{name}", path.read_bytes())
        path.unlink()

    def share_weights(self, policy_id: str, attempt: int, version: int) -> None:
        path = self._weights(policy_id, attempt, version)
        self._client.put_file(f"/v1/weights/{policy_id}/{attempt}-{version}", path.read_bytes())
        path.unlink()

    def fetch_segment(self, name: str, *, nbytes: int, sha256: str) -> None:
        try:
            data = self._client.get_file(f"/v1/segments/{check_id(name, 'name')}")
        except RefusedError as error:
            if error.code != "no_file":
                raise
            raise SegmentError("missing", f"the coordinator has no segment {name}") from error
        self._keep(self._segment(name), data)

    def fetch_weights(self, policy_id: str, attempt: int, version: int, *, nbytes: int, sha256: str) -> None:
        held = self._held.get(policy_id)
        old = None if held is None else self._weights(policy_id, *held)
        data = None
        if self._asks_for_delta and held is not None and old is not None:
            data = self._get_by_delta(policy_id, attempt, version, old=old, held=held, sha256=sha256)
        if data is None:
            data = self._get_weights(policy_id, attempt, version)
        if old is not None:
            old.unlink(missing_ok=True)
            del self._held[policy_id]
        self._keep(self._weights(policy_id, attempt, version), data)
        self._held[policy_id] = attempt, version

    def _get_weights(self, policy_id: str, attempt: int, version: int, *, query: str = "") -> bytes:
        try:
            return self._client.get_file(f"/v1/weights/{check_id(policy_id, 'policy_id')}/{attempt}-{version}{query}")
        except RefusedError as error:
            if error.code != "no_file":
                raise
            raise WeightsGoneError(f"the coordinator has no weights {attempt}-{version} of {policy_id}") from error

    def _get_by_delta(
        self, policy_id: str, attempt: int, version: int, *, old: Path, held: tuple[int, int], sha256: str
    ) -> bytes | None:
        """Return the whole file, made from an older one if the answer is a delta; None if that does not make it."""
        data = self._get_weights(policy_id, attempt, version, query=f"?have={held[0]}-{held[1]}")
        if not is_delta(np.frombuffer(data, np.uint8)):
            return data
        try:
            before = np.frombuffer(read_regular_file(old.parent, old.name), np.uint8)
            whole = apply_delta(before, np.frombuffer(data, np.uint8)).tobytes()
        except (CommError, OSError) as error:
            logger.warning("weights %d-%d of %s are fetched whole: %s", attempt, version, policy_id, error)
            return None
        if hashlib.sha256(whole).hexdigest() != sha256:
            logger.warning("weights %d-%d of %s are fetched whole: a delta made others", attempt, version, policy_id)
            return None
        return whole

    def forget_segment(self, name: str) -> None:
        self._segment(name).unlink(missing_ok=True)

    def close(self) -> None:
        self._clean()

    def _segment(self, name: str) -> Path:
        return self.segments / f"{check_id(name, 'name')}.safetensors"

    def _weights(self, policy_id: str, attempt: int, version: int) -> Path:
        return self.weights / check_id(policy_id, "policy_id") / f"{attempt}-{version}.safetensors"

    def _keep(self, path: Path, data: bytes) -> None:
        """Write a file, waiting for room on a full disk as long as this worker stays."""

        def write() -> None:
            with atomic_write(path) as file:
                file.write(data)

        when_there_is_room(write, tell=logger.warning, wait=self._client.wait)
