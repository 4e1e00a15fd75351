"""Children that do what a test tells them: they are imported by the processes that tests start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from ding_like.comm.workers.processes import ChildProcess
from ding_like.errors import EnvError


def is_running(pid: int) -> bool:
    """Return whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Scripted(ChildProcess):
    """Child process that reports ready, then does what `script` names."""

    def __init__(self, script: str = "wait", *, folder: Path | None = None, **settings: Any) -> None:
        super().__init__(name=settings.pop("name", "child"), **settings)
        self.script = script
        self.folder = folder

    def serve(self, stop: threading.Event) -> None:
        getattr(self, f"_{self.script}")(stop)

    def _wait(self, stop: threading.Event) -> None:
        self.report_ready(pid=os.getpid())
        stop.wait(60.0)

    def _write_then_wait(self, stop: threading.Event) -> None:
        assert self.folder is not None
        self._wait(stop)
        (self.folder / f"ended-{self.name}").touch()

    def _never_ready(self, stop: threading.Event) -> None:
        stop.wait(60.0)

    def _ignore(self, stop: threading.Event) -> None:
        self.report_ready()
        threading.Event().wait(60.0)

    def _refuse(self, stop: threading.Event) -> None:
        raise EnvError("the env has no doors")

    def _stumble(self, stop: threading.Event) -> None:
        self.report_ready()
        raise KeyError("door")

    def _crash(self, stop: threading.Event) -> None:
        self.report_ready()
        os.kill(os.getpid(), signal.SIGSEGV)

    def _done(self, stop: threading.Event) -> None:
        self.report_ready()
        self.report("done")

    def _lose_part(self, stop: threading.Event) -> None:
        self.report_ready()
        told = dict(type="EnvError", text="step 7 raised", trace='File "env.py", line 3, in step')
        self.report("lost", worker="actor1", **told)
        self.report("back", worker="actor1")
        stop.wait(60.0)

    def _give_part_up(self, stop: threading.Event) -> None:
        self.report_ready()
        self.report("gone", worker="actor1", type="EnvError", text="step 7 raised", trace="...")
        stop.wait(60.0)

    def _lose_one_of_two(self, stop: threading.Event) -> None:
        self.report_ready()
        self.report("lost", worker="actor1", type="EnvError", text="step 7 raised", trace="...")
        self.report("gone", worker="actor1", type="EnvError", text="step 7 raised", trace="...")
        stop.wait(60.0)

    def _have_child(self, stop: threading.Event) -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        self.report_ready(pid=os.getpid(), child=child.pid)
        stop.wait(60.0)
