"""Process of a run that another process has started, and which ends with it.

python -m ding_like.entry.child_run GIVEN, where GIVEN is JSON: the module path of the parent, and a `ding` command, or
the part of a run whose first process is the parent: a learner beside it, or a rank that collects.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ding_like
from ding_like.utils.processes import watch_parent

_GRACE_S = 60.0  # to save a point after the parent has ended
_RANK_GRACE_S = 10.0  # for a rank that collects, which notices the end of the first one by itself
_GONE = "has ended without a word: it was killed"


def main(argv: Sequence[str]) -> int:
    """Run the command as if it had been typed, or the part of the run; return the exit status."""
    given = json.loads(argv[0])
    sys.path[:] = given["path"]  # where the parent finds the modules that a config names
    if "worker" in given:
        return _run_worker(**given["worker"])
    from ding_like.entry.cli import main as ding

    sys.argv = [str(Path(ding_like.__file__).with_name("__main__.py")), *given["arguments"]]  # as `python -m ding_like`
    end_with_parent(_GRACE_S)
    ding(given["arguments"])
    return 0


def end_with_parent(grace_s: float, *, notify: Callable[[], None] = lambda: None) -> None:
    """Once the parent has ended, call `notify`, save a point and end, as at SIGTERM; at once after `grace_s`."""

    def leave() -> None:
        notify()
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(grace_s)
        os._exit(1)

    watch_parent(leave)


def _run_worker(
    exp_name: str,
    arguments: Mapping[str, Any],
    *,
    store: str | None = None,
    rank: int = 0,
    resumes: bool = True,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Learn as rank `rank` of the learners that meet in `store`, or collect as the rank that `environment` names."""
    from ding_like.entry.training import RunArguments
    from ding_like.errors import DingError
    from ding_like.utils.log import setup_console

    setup_console(logging.INFO)
    run = RunArguments(**arguments)
    try:
        if store is None:
            from ding_like.entry.serial_entry import RankMode

            os.environ.update(environment or {})
            end_with_parent(_RANK_GRACE_S)
            RankMode.of(None, run, exp_name=exp_name).start()
        else:
            from ding_like.comm.learner_group import LearnerGroup
            from ding_like.entry.modes import MODES, load

            mode = load(MODES[run.mode].home).of(None, run, exp_name=exp_name)
            mode.plan = replace(mode.plan, resumes=resumes)
            timeout_s = float(mode.plan.cfg.learners.timeout_s)
            first = _FirstLearner(timeout_s)
            with LearnerGroup(
                store, rank=rank, world_size=run.num_learners, timeout_s=timeout_s, children=first
            ) as mode.group:
                mode.train()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except DingError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # the user's env and model may raise anything; it is printed and ends the process
        traceback.print_exception(error)
        return 1
    return 0


@dataclass
class _FirstLearner:
    """First learner, the parent process, whose end is reported to the group, which then waits no longer."""

    timeout_s: float

    def tell(self, note: Callable[[int, str], None]) -> None:
        """Call `note` once the first learner has ended; then end this process after the iteration under way."""
        end_with_parent(self.timeout_s, notify=lambda: note(0, _GONE))

    def pid(self, rank: int) -> int | None:
        """Return the id of the first learner's process, None for another rank's."""
        return None if rank else os.getppid()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
