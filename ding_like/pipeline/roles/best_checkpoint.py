"""Keep the best model of before a run's end, for a run that goes on beyond it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

BEST_CHECKPOINT = "ckpt/ckpt_best.pth.tar"
# What was best before the closing evaluation; hidden, for nobody but a resumed run asks for it.
_EARLIER = "ckpt/.best_before_the_end.pth.tar"


def set_best_aside(exp_name: str | Path) -> None:
    """Keep the best checkpoint, if there is one, before that of the closing evaluation takes its place."""
    best, earlier = Path(exp_name, BEST_CHECKPOINT), Path(exp_name, _EARLIER)
    if not best.is_file():
        return
    earlier.unlink(missing_ok=True)
    try:
        os.link(best, earlier)
    except OSError:  # a file system without links
        os.replace(best, earlier)


def put_best_back(exp_name: str | Path) -> None:
    """Have the best checkpoint be what it was before a closing evaluation that a resumed run has never played."""
    with suppress(FileNotFoundError):  # there is none, or another learner of the run was quicker
        os.replace(Path(exp_name, _EARLIER), Path(exp_name, BEST_CHECKPOINT))


def forget_earlier_best(exp_name: str | Path) -> None:
    """Delete what a run of before kept in a folder in which another one begins."""
    Path(exp_name, _EARLIER).unlink(missing_ok=True)
