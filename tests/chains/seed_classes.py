"""Subclasses of the classes of mode seed, named in a config: each counts its calls in a file, from whatever process."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from ding_like.comm.zmq.inference import InferenceClient, InferenceProxy, ProxyPorts, Reply
from ding_like.pipeline.seed.actor import Actor, ActorThread
from tests.chains.hands import record_hands

FOLDER = "CHAIN_FOLDER"  # environment variable: where the counts and the records are
# A request for actions moves observations, as a forward pass of a serial run does, and no row.
MOMENTS = ("comm/zmq/rows.py:_send_segment",)


def count(name: str) -> None:
    """Count a call."""
    with open(Path(os.environ[FOLDER]) / f"calls-{os.getpid()}", "a") as file:
        file.write(f"{name}\n")


def counts(folder: Path) -> Counter[str]:
    """Return the calls of all processes."""
    return Counter(line for path in folder.glob("calls-*") for line in path.read_text().split())


class OwnActor(Actor):
    """Actor whose process records which files a row passes."""

    def serve(self, stop: threading.Event) -> None:
        count("Actor.serve")
        with record_hands(Path(os.environ[FOLDER]), loops=["pipeline/seed/actor.py:_collect"], moments=MOMENTS):
            super().serve(stop)
        count("torch" if "torch" in sys.modules else "no-torch")


class OwnThread(ActorThread):
    def run(self) -> None:
        count("ActorThread.run")
        super().run()


class OwnClient(InferenceClient):
    """Client that turns the network's values around: what was best is worst."""

    def evaluate_model(self, *asked: Any, **named: Any) -> Reply:
        count("InferenceClient.evaluate_model")
        reply = super().evaluate_model(*asked, **named)
        return reply._replace(output=-reply.output) if "TURNED" in os.environ else reply


class OwnProxy(InferenceProxy):
    def start(self) -> ProxyPorts:
        count("InferenceProxy.start")
        return super().start()


class NoActor:
    """Class that is no Actor."""
