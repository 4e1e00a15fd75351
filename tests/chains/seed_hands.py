"""Actor of mode seed whose process records which files a row passes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ding_like.pipeline.seed.actor import Actor
from tests.chains.hands import record_hands

FOLDER = "HANDS_FOLDER"  # environment variable: where the records are
# A request for actions moves observations, as a forward pass of a serial run does, and no row.
MOMENTS = ("comm/zmq/rows.py:_send_segment",)


class RecordedActor(Actor):
    def serve(self, stop: threading.Event) -> None:
        with record_hands(Path(os.environ[FOLDER]), loops=["pipeline/seed/actor.py:_collect"], moments=MOMENTS):
            super().serve(stop)
