"""Processes of the other learners of a run on this machine: start, watch and end them."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ding_like.comm.learner_group import LearnerGroup
from ding_like.utils.processes import describe_status, end_processes, last_line, make_own_folder, start_child

logger = logging.getLogger(__name__)

_WATCH_S = 5.0  # for the thread of a process that has ended to end

# Return how to start the learner of a rank that joins by a store: the arguments of its process.
Command = Callable[[int, Path], Sequence[str]]


class LearnerProcesses:
    """Processes of learners 1 to `world_size` - 1, beside this one, the first; use it with `with`.

    A learner's output goes to `{log_folder}/rank{r}.txt`; its environment is this process's and `env`. They can
    notice that this process has ended (`utils.processes.watch_parent`), also where it was killed. What is left then is
    a folder with the file by which they find each other, deleted by the next start on this machine.

        with LearnerProcesses(command, world_size=2, log_folder=folder) as processes, processes.join() as group:
            ...
    """

    def __init__(
        self, command: Command, *, world_size: int, log_folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._world_size = world_size
        self._log_folder = log_folder
        self._noted = threading.Condition()
        self._ended: dict[int, str] = {}
        self._tell: Callable[[int, str], None] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watches: list[threading.Thread] = []
        self._folder = make_own_folder("ding-learners-")
        self._store = self._folder / "learners.store"
        log_folder.mkdir(parents=True, exist_ok=True)
        try:
            for rank in range(1, world_size):
                self._start(rank, command(rank, self._store), {**os.environ, **(env or {})})
        except BaseException:
            self.close(own_s=0.0)
            raise

    def _start(self, rank: int, command: Sequence[str], env: Mapping[str, str]) -> None:
        with open(self.log_file(rank), "ab") as output:
            # A session of its own: an interrupt from the keyboard is for the first learner, which ends the others.
            process = start_child(command, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        self._processes.append(process)
        watch = threading.Thread(target=self._watch, args=(rank, process), name=f"learner-{rank}", daemon=True)
        self._watches.append(watch)
        watch.start()

    def log_file(self, rank: int) -> Path:
        """Return where a learner's output goes."""
        return self._log_folder / f"rank{rank}.txt"

    def join(self, *, timeout_s: float = 60.0, join_s: float = 120.0) -> LearnerGroup:
        """Join the others as their first rank. Raises CommError, naming the rank, where one does not come."""
        return LearnerGroup(
            self._store, rank=0, world_size=self._world_size, timeout_s=timeout_s, join_s=join_s, children=self
        )

    def tell(self, note: Callable[[int, str], None]) -> None:
        """Have `note` called with the rank and how it ended, of each that has or will; from any thread."""
        with self._noted:
            self._tell = note
            for rank, how in self._ended.items():
                note(rank, how)

    def pid(self, rank: int) -> int:
        """Return the id of a learner's process."""
        return self._processes[rank - 1].pid

    def close(self, *, own_s: float = 10.0, asked_s: float = 10.0) -> None:
        """Wait `own_s` for the others to end by themselves, ask them to, wait `asked_s`, kill; may be called again."""
        end_processes(self._processes, own_s=own_s, asked_s=asked_s)
        for watch in self._watches:
            watch.join(_WATCH_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> LearnerProcesses:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close(own_s=10.0 if error is None else 0.0)

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        words = f" ({last_line(self.log_file(rank)) or 'it printed nothing'})" if status > 0 else ""
        how = f"{describe_status(status)}{words}; its output is in {self.log_file(rank)}"
        with self._noted:
            self._ended[rank] = how
            if self._tell is not None:
                self._tell(rank, how)
