"""Be one of several learners of a serial run, not the first, which has started this process.

python -m ding_like.entry.learner_rank STORE RANK SAID, where SAID is what the first learner says of the run, as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ding_like.comm.learner_group import LearnerGroup
from ding_like.entry.learners import RunArguments
from ding_like.entry.serial_entry import load_config, run_learner
from ding_like.errors import DingError
from ding_like.utils.log import setup_console
from ding_like.utils.processes import watch_parent

_GONE = "has ended without a word: it was killed"


def main(argv: Sequence[str]) -> int:
    """Run this learner's share of the run to its end; return the exit status."""
    setup_console(logging.INFO)
    store, rank, said = argv[0], int(argv[1]), json.loads(argv[2])
    sys.path[:] = said["path"]  # where the first learner finds the modules that the config names
    arguments = RunArguments(**said["arguments"])
    cfg = load_config(
        Path(said["exp_name"]) / "total_config.py",
        seed=arguments.seed,
        exp_name=said["exp_name"],
        save=False,
        renew_dir=False,
    )
    timeout_s = float(cfg.learners.timeout_s)
    first = _First()
    watch_parent(partial(_leave, first, timeout_s))
    try:
        with LearnerGroup(
            store, rank=rank, world_size=arguments.num_learners, timeout_s=timeout_s, children=first
        ) as group:
            run_learner(cfg, arguments, group=group, resumes=bool(said["resumes"]))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except DingError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except Exception:  # the user's env and model may raise anything; it is printed and ends the rank
        traceback.print_exc()
        return 1
    return 0


class _First:
    """Let the group know that the first learner, which has started this one, has ended: no silence is waited for."""

    def __init__(self) -> None:
        self._noted = threading.Lock()
        self._has_ended = False
        self._note: Callable[[int, str], None] | None = None

    def tell(self, note: Callable[[int, str], None]) -> None:
        """Have `note` called once the first learner has ended."""
        with self._noted:
            self._note = note
            if self._has_ended:
                note(0, _GONE)

    def has_ended(self) -> None:
        """Tell the group."""
        with self._noted:
            self._has_ended = True
            if self._note is not None:
                self._note(0, _GONE)


def _leave(first: _First, timeout_s: float) -> None:
    """End after this turn of the loop, as the first learner has ended; at once where the turn does not end."""
    first.has_ended()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(timeout_s)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
