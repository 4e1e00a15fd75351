"""A commander that ends a run once a file exists, as an env-step limit would: granted updates are made first."""

from __future__ import annotations

import os
from pathlib import Path

from ding_like.utils.registries import COMMANDER_REGISTRY
from ding_like.worker.commander import NaiveCommander, RunView

END = "DING_CHAOS_END"  # environment variable: a path; the run is to end once it is there


@COMMANDER_REGISTRY.register("ending")
class EndingCommander(NaiveCommander):
    """Command a run until the file is there."""

    def is_to_end(self, run: RunView) -> bool:
        path = os.environ.get(END)
        return super().is_to_end(run) or (path is not None and Path(path).exists())
