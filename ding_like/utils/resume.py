"""Saved points of a run, from which it resumes: folders that are whole or not there, the newest few of them.

`{folder}/{step}/` holds one file per part and, written last, `manifest.json` with their sizes and hashes. A folder is
made under a hidden name and renamed when it is complete. That survives the death of the process; `durable` writes
survive a power cut as far as the disk writes what it confirms.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ding_like.errors import CheckpointError
from ding_like.types import Json, State
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.utils.files import sync_folder

logger = logging.getLogger(__name__)

# Raised by one when files of older versions can no longer be read.
FORMAT = 1
_MANIFEST = "manifest.json"


class Saved(NamedTuple):
    """One saved point of a run."""

    step: int
    parts: dict[str, State]
    meta: dict[str, Json]


class ResumeStore:
    """Saved points of the parts of a run, each under a step number; the newest valid one is loaded."""

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2, durable: bool = True) -> None:
        self.folder = Path(folder)
        self._keep = keep
        self._durable = durable

    def save(self, step: int, parts: Mapping[str, State], meta: Mapping[str, Json]) -> Path:
        """Write a step and delete all but the newest `keep`; `meta` is JSON-like. Returns the folder.

        A step that is there already is replaced. What a killed process left half-written is removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        made, final = self._hidden(step, "tmp"), self.folder / str(step)
        made.mkdir()
        try:
            files = {}
            for name, state in parts.items():
                path = made / f"{name}.pt"
                save_state(path, state, durable=self._durable)
                files[path.name] = {"bytes": path.stat().st_size, "sha256": _hash(path)}
            manifest = {"format": FORMAT, "step": step, "files": files, "meta": dict(meta)}
            with open(made / _MANIFEST, "xb") as file:
                file.write(json.dumps(manifest, indent=1).encode())
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            if final.exists():
                # A folder cannot replace a full one: the old one steps aside, and goes with the leftovers.
                os.rename(final, self._hidden(step, "old"))
            os.rename(made, final)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        if self._durable:
            sync_folder(self.folder)
        for old in self.steps()[self._keep :]:
            shutil.rmtree(self.folder / str(old), ignore_errors=True)
        self._remove_leftovers()
        return final

    def steps(self) -> list[int]:
        """Return the steps that are there, newest first; `load` finds out whether they are valid."""
        if not self.folder.is_dir():
            return []
        return sorted((int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()), reverse=True)

    def load_newest(self) -> Saved:
        """Return the newest step whose files fit its manifest; skipped ones are named in the log.

        Raises CheckpointError if there is none.
        """
        faults = []
        for step in self.steps():
            try:
                saved = self.load(step)
            except CheckpointError as error:
                faults.append(str(error))
                continue
            for fault in faults:
                logger.warning("%s Going on from step %d instead.", fault, step)
            return saved
        if faults:
            raise CheckpointError(f"no saved point of {self.folder} is valid: " + " ".join(faults))
        raise CheckpointError(
            f"there is nothing to resume in {self.folder}: the run saved no point before it ended. Start it again, "
            "or begin from a model with --load-path."
        )

    def load(self, step: int) -> Saved:
        """Return one step. Raises CheckpointError if it is not whole, or of another version."""
        files, meta = self._checked(step)
        return Saved(step, {path.stem: load_state(path, what="saved state") for path in files}, meta)

    def newest_meta(self) -> dict[str, Json]:
        """Return the `meta` of the newest step whose manifest can be read; its other files are not read.

        Raises CheckpointError if there is none.
        """
        for step in self.steps():
            with suppress(CheckpointError):
                return dict(_read_manifest(self.folder / str(step) / _MANIFEST)["meta"])
        return self.load_newest().meta  # raises the error that names the faults

    def whole_steps(self) -> list[int]:
        """Return the steps whose files fit their manifests, newest first."""
        found = []
        for step in self.steps():
            with suppress(CheckpointError):
                self._checked(step)
                found.append(step)
        return found

    def forget_after(self, step: int) -> None:
        """Delete the steps that are newer than one: a run that resumes from it makes them again."""
        for newer in self.steps():
            if newer > step:
                shutil.rmtree(self.folder / str(newer), ignore_errors=True)

    def _checked(self, step: int) -> tuple[list[Path], dict[str, Json]]:
        """Return (the files, `meta`) of a step. Raises CheckpointError if a file does not fit the manifest."""
        folder = self.folder / str(step)
        manifest = _read_manifest(folder / _MANIFEST)
        for name, expected in manifest["files"].items():
            path = folder / name
            size = path.stat().st_size if path.is_file() else -1
            if size != expected["bytes"] or _hash(path) != expected["sha256"]:
                seen = "is missing" if size < 0 else f"has {size} bytes of {expected['bytes']} or other contents"
                raise CheckpointError(f"{path} {seen}.")
        return [folder / name for name in manifest["files"]], manifest["meta"]

    def _hidden(self, step: int, kind: str) -> Path:
        return self.folder / f".{step}.{secrets.token_hex(4)}.{kind}"

    def _remove_leftovers(self) -> None:
        for path in self.folder.iterdir():
            if path.name.startswith(".") and path.suffix in (".tmp", ".old"):
                shutil.rmtree(path, ignore_errors=True)


def _read_manifest(path: Path) -> dict[str, Json]:
    try:
        manifest: dict[str, Json] = json.loads(path.read_bytes())
        is_ours = isinstance(manifest["files"], dict) and isinstance(manifest["meta"], dict)
        version = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is missing or no manifest ({error}).") from error
    if not is_ours or version != FORMAT:
        raise CheckpointError(f"{path} is of format {version}, this version reads {FORMAT}.")
    return manifest


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
