"""Files of ding_like that a row passes from `env.step` to the optimizer's step, recorded in a real run.

A *hand* is a file on the Python call stack, from the loop of the process to the call itself, at the moment when a row
is moved. Value types and helpers (`errors`, `types`, `utils/`, `data/batch.py`) do not count, nor do
evaluations, whose rows are not learned from.

    with record_hands(tmp_path, loops=["pipeline/training_loop.py:_loop"]):
        main([...])
    assert len(hands_of(tmp_path)) <= 10

A child process records itself: it enters `record_hands` with the same folder, for example in a module that the config
names. Files are written as soon as they are found, so that a process may be killed.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

import ding_like

# Calls that move a row: beginning of the path below ding_like, and name of the function.
MOMENTS = (
    "envs/manager/:step",
    "data/rollout.py:append",
    "policy/:segment",
    "worker/replay_buffer/:push",
    "worker/replay_buffer/:sample",
    "policy/:grad",
    "policy/:apply",
)
_ROOT = os.path.dirname(ding_like.__file__) + os.sep
_NO_HANDS = ("errors.py", "types.py", "utils/", "data/batch.py")
_EVALUATION = "worker/evaluator.py"


@contextmanager
def record_hands(folder: Path, *, loops: Sequence[str], moments: Sequence[str] = ()) -> Iterator[None]:
    """Record the files on the stack, from one of `loops` to each moment, into a file of this process in `folder`.

    Threads are recorded that start inside. `loops` and further `moments` (sending, say) are written as MOMENTS are.
    """
    with (folder / f"hands_{os.getpid()}.txt").open("a") as file:
        recorder = _Recorder(file, loops, (*MOMENTS, *moments))
        threading.setprofile(recorder)
        sys.setprofile(recorder)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def hands_of(folder: Path) -> list[str]:
    """Return the hands that all processes recorded in a folder, sorted."""
    return sorted({line for file in folder.glob("hands_*.txt") for line in file.read_text().split()})


class _Recorder:
    """Profile function of the threads of a process."""

    def __init__(self, file: TextIO, loops: Sequence[str], moments: Sequence[str]) -> None:
        self._file = file
        self._loops, self._moments = _split(loops), _split(moments)
        self._found: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and _is_one_of(frame, self._moments):
            for path in self._hands(frame) - self._found:
                self._found.add(path)
                self._file.write(f"{path}\n")
                self._file.flush()

    def _hands(self, moment: FrameType) -> set[str]:
        """Return the files from the loop to the moment, none where no loop is on the stack."""
        files: set[str] = set()
        frame: FrameType | None = moment
        while frame is not None:
            path = _path(frame)
            if path.startswith(_EVALUATION):
                break
            if path and not path.startswith(_NO_HANDS):
                files.add(path)
            if _is_one_of(frame, self._loops):
                return files
            frame = frame.f_back
        return set()


def _split(places: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the beginnings of paths by name of the function."""
    names = {place.rpartition(":")[2] for place in places}
    return {name: tuple(p.rpartition(":")[0] for p in places if p.endswith(f":{name}")) for name in names}


def _is_one_of(frame: FrameType, places: dict[str, tuple[str, ...]]) -> bool:
    beginnings = places.get(frame.f_code.co_name)
    return beginnings is not None and _path(frame).startswith(beginnings) and _path(frame) != ""


def _path(frame: FrameType) -> str:
    """Return the path below ding_like, "" for a file of another package."""
    name = frame.f_code.co_filename
    return name[len(_ROOT) :].replace(os.sep, "/") if name.startswith(_ROOT) else ""
