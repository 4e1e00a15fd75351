"""Share segments and weights between the processes of a run: by a common folder, or through the coordinator."""

from __future__ import annotations

import logging
import os
import shutil
import weakref
from pathlib import Path
from typing import Protocol

from ding_like.comm.rest.http_client import HttpCoordinator
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import check_id
from ding_like.comm.weights.files import WeightsGoneError
from ding_like.data.segment_file import SegmentError
from ding_like.utils.files import atomic_write
from ding_like.utils.full_disk import when_there_is_room
from ding_like.utils.own_folder import make_own_folder

logger = logging.getLogger(__name__)

_MEMORY = Path("/dev/shm")


class SharedFiles(Protocol):
    """Say where files are written and read, and upload and fetch them where needed."""

    segments: Path
    weights: Path

    def share_segment(self, name: str) -> None:
        """Let others read a segment that was written."""

    def share_weights(self, policy_id: str, attempt: int, version: int) -> None:
        """Let others read weights that were written."""

    def fetch_segment(self, name: str, *, nbytes: int, sha256: str) -> None:
        """Bring a segment that will be read."""

    def fetch_weights(self, policy_id: str, attempt: int, version: int, *, nbytes: int, sha256: str) -> None:
        """Bring weights that will be read. Raises WeightsGoneError if they are not kept any more."""

    def forget_segment(self, name: str) -> None:
        """Let go of this process's copy of a segment."""

    def close(self) -> None:
        """Let go of all copies."""


class SharedFolder:
    """Have all processes see the same folders: there is nothing to transfer."""

    def __init__(self, segments: Path, weights: Path) -> None:
        self.segments = segments
        self.weights = weights

    def share_segment(self, name: str) -> None: ...

    def share_weights(self, policy_id: str, attempt: int, version: int) -> None: ...

    def fetch_segment(self, name: str, *, nbytes: int, sha256: str) -> None: ...

    def fetch_weights(self, policy_id: str, attempt: int, version: int, *, nbytes: int, sha256: str) -> None: ...

    def forget_segment(self, name: str) -> None: ...

    def close(self) -> None: ...


class StreamedFiles:
    """Carry files through the coordinator, by way of a temporary folder of this process's own."""

    def __init__(self, client: HttpCoordinator, *, folder: str | os.PathLike[str] | None = None) -> None:
        """Make the folder: below `folder`, else in memory where the system has such a place."""
        self._client = client
        where = folder or (_MEMORY if _MEMORY.is_dir() else None)
        self._folder = make_own_folder("ding-files-", where=where)
        self._clean = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.segments = self._folder / "segments"
        self.weights = self._folder / "weights"
        self._fetched_weights: Path | None = None

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
        try:
            data = self._client.get_file(f"/v1/weights/{check_id(policy_id, 'policy_id')}/{attempt}-{version}")
        except RefusedError as error:
            if error.code != "no_file":
                raise
            raise WeightsGoneError(f"the coordinator has no weights {attempt}-{version} of {policy_id}") from error
        if self._fetched_weights is not None:
            self._fetched_weights.unlink(missing_ok=True)
        self._fetched_weights = self._weights(policy_id, attempt, version)
        self._keep(self._fetched_weights, data)

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
