"""Run a `ding` command for a parent process, and end when the parent has ended.

python -m ding_like.entry.child_run SAID, where SAID is JSON: the module path of the parent, and the command.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import ding_like
from ding_like.utils.processes import watch_parent

_GRACE_S = 60.0  # to save a point after the parent has ended


def main(argv: Sequence[str]) -> None:
    """Run the command as if it had been typed."""
    from ding_like.entry.cli import main as ding

    said = json.loads(argv[0])
    sys.path[:] = said["path"]  # where the parent finds the modules that a config names
    sys.argv = [str(Path(ding_like.__file__).with_name("__main__.py")), *said["arguments"]]  # as `python -m ding_like`
    watch_parent(_leave)
    ding(said["arguments"])


def _leave() -> None:
    """Save a point and end, as at SIGTERM; at once where that takes too long."""
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
