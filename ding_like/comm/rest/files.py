"""Files of a parallel run: segments and weights in common folders, or sent through the coordinator."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import weakref
from pathlib import Path

import numpy as np

from ding_like.comm.rest.http_client import HttpCoordinator
from ding_like.comm.rest.wire import RefusedError, check_id
from ding_like.comm.weights.encode import apply_delta, is_delta
from ding_like.comm.weights.files import WeightsGoneError
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError
from ding_like.utils.files import atomic_write, read_regular_file, when_there_is_room
from ding_like.utils.processes import make_own_folder

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

    def fetch_segment(self, name: str) -> None:
        """Bring a segment that will be read."""

    def fetch_weights(self, policy_id: str, attempt: int, version: int, *, sha256: str) -> None:
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

        With `asks_for_delta` requests name the version of weights that is here, and the coordinator may answer with
        what has changed since.
        """
        self._client = client
        self._asks_for_delta = asks_for_delta
        where = folder or (_MEMORY if _MEMORY.is_dir() else None)
        self._folder = make_own_folder("ding-files-", where=where)
        self._clean = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        super().__init__(self._folder / "segments", self._folder / "weights")
        self._held: dict[str, Path] = {}  # weights that are here, one version of a policy

    def share_segment(self, name: str) -> None:
        path = self._segment(name)
        self._client.put_file(f"/v1/segments/{name}", path.read_bytes())
        path.unlink()

    def share_weights(self, policy_id: str, attempt: int, version: int) -> None:
        path = self._weights(policy_id, attempt, version)
        self._client.put_file(self._route(path), path.read_bytes())
        path.unlink()

    def fetch_segment(self, name: str) -> None:
        try:
            data = self._client.get_file(f"/v1/segments/{check_id(name, 'name')}")
        except RefusedError as error:
            if error.code != "no_file":
                raise
            raise SegmentError("missing", f"the coordinator has no segment {name}") from error
        self._keep(self._segment(name), data)

    def fetch_weights(self, policy_id: str, attempt: int, version: int, *, sha256: str) -> None:
        old, new = self._held.pop(policy_id, None), self._weights(policy_id, attempt, version)
        data = None
        try:
            if old is not None and self._asks_for_delta:
                data = self._get_by_delta(old, new, sha256=sha256)
            if data is None:
                data = self._client.get_file(self._route(new))
        except RefusedError as error:
            if error.code != "no_file":
                raise
            raise WeightsGoneError(f"the coordinator has no weights {attempt}-{version} of {policy_id}") from error
        finally:
            if old is not None:
                old.unlink(missing_ok=True)
        self._keep(new, data)
        self._held[policy_id] = new

    def _get_by_delta(self, old: Path, new: Path, *, sha256: str) -> bytes | None:
        """Return the whole file, made from an older one if the answer is a delta; None if that does not make it."""
        data = self._client.get_file(f"{self._route(new)}?have={old.stem}")
        if not is_delta(np.frombuffer(data, np.uint8)):
            return data
        try:
            before = np.frombuffer(read_regular_file(old.parent, old.name), np.uint8)
            whole = apply_delta(before, np.frombuffer(data, np.uint8)).tobytes()
            if hashlib.sha256(whole).hexdigest() != sha256:
                raise CommError("the delta made other weights")
        except (CommError, OSError) as error:
            logger.warning("weights %s are fetched whole: %s", new.stem, error)
            return None
        return whole

    def _route(self, weights: Path) -> str:
        return f"/v1/weights/{weights.parent.name}/{weights.stem}"

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

        when_there_is_room(write, report=logger.warning, wait=self._client.wait)
