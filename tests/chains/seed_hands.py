"""Actor of mode seed whose process records which files a row passes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ding_like.pipeline.seed.actor import Actor
from tests.chains.hands import record_hands

FOLDER = "HANDS_FOLDER"  # environment variable: where the records are
MOMENTS = ("comm/zmq/sockets.py:send", "comm/zmq/sockets.py:receive_from", "comm/zmq/rows.py:take")


class RecordedActor(Actor):
    def serve(self, stop: threading.Event) -> None:
        with record_hands(Path(os.environ[FOLDER]), loops=["pipeline/seed/actor.py:_collect"], moments=MOMENTS):
            super().serve(stop)
