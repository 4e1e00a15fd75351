"""Answer with the newest weights there are: newer ones take the place of the old between two answers."""

from __future__ import annotations

import logging
import math
import threading
from pathlib import Path
from typing import Any

from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.serve.messages import Answer, Question
from ding_like.errors import CheckpointError, DingError, SchemaError
from ding_like.pipeline.serve.agent import Agent, Blueprint, describe_agent
from ding_like.pipeline.serve.checkpoints import Candidate, CheckpointChoice

logger = logging.getLogger(__name__)

_UNHEARD_OF = "?"  # in place of a file's name, where a fault was none of those that are known
_CLOSE_S = 30.0  # for a checkpoint that is being loaded
_BYTES_PER_VALUE = 32  # JSON writes a float64 with up to 24, and something between two
_BODY_BESIDE = 1 << 17  # for names, brackets and spaces
_MAX_BODY = 60 << 20  # below what the server reads at all


class ServedPolicy:
    """Answer questions by the checkpoint that is chosen, and look for a newer one every `reload_s` seconds.

    A newer checkpoint is loaded and tried by a thread of its own, into a policy of its own, while the one before goes
    on to answer; then it takes its place. One that is torn, of another model or gone leaves the one before where it is.
    An answer's version is that of the weights that computed it, all rows of it, and of two questions that follow each
    other the second is never answered by older ones.

    Use it with `with`, or call `close`. Raises CheckpointError if the first checkpoint cannot be served.
    """

    def __init__(self, blueprint: Blueprint, choice: CheckpointChoice, *, reload_s: float = 1.0) -> None:
        self._blueprint = blueprint
        self._choice = choice
        self._reload_s = reload_s
        self._lock = threading.Lock()  # one forward pass at a time: actors keep scratch memory
        self._fault: dict[str, str] | None = None
        self._bad: dict[Path, Candidate] = {}  # what could not be loaded, and is not tried again
        self._told: set[str] = set()  # files whose fault was logged, until they are good again
        self._agent, self._served = self._load_first()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="checkpoints", daemon=True)
        self._thread.start()

    def __enter__(self) -> ServedPolicy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop looking for newer checkpoints; may be called again."""
        self._stop.set()
        self._thread.join(_CLOSE_S)

    @property
    def agent(self) -> Agent:
        """Return what answers now."""
        return self._agent

    @property
    def num_values(self) -> int:
        """Return how many numbers one observation has."""
        return self._blueprint.reader.num_values

    def example(self) -> Any:
        """Return an observation as JSON has it."""
        return self._blueprint.reader.example()

    @property
    def max_body(self) -> int:
        """Return how many bytes the largest batch may take, with its state, as JSON with all digits."""
        reader, agent = self._blueprint.reader, self._agent
        num_values = reader.num_values + sum(math.prod(shape) for shape, _ in agent.state_columns.values())
        return min(_BYTES_PER_VALUE * num_values * reader.max_batch + _BODY_BESIDE, _MAX_BODY)

    def act(self, question: Question) -> Answer:
        """Return the answer. Raises RefusedError for a question that does not fit."""
        agent = self._agent
        read = agent.read(question)
        try:
            with self._lock:
                return agent.act(*read)
        except SchemaError as error:  # what only the policy knows, such as a mask that leaves one of its actions none
            raise RefusedError("schema", str(error)) from error

    def health(self) -> dict[str, Any]:
        """Return what is served, and what came of the last look for newer weights, JSON-like."""
        agent = self._agent
        return {
            "version": agent.version.describe(),
            **describe_agent(agent, self._blueprint),
            "reload": {"loaded": agent.version.number, "every_s": self._reload_s, "fault": self._fault},
        }

    def look(self) -> bool:
        """Take a newer checkpoint if there is one; return whether there was."""
        served = (self._served, self._agent.version.train_iter)
        for candidate in self._choice.better(served):
            if self._bad.get(candidate.path) == candidate:
                continue
            agent = self._load(candidate, number=self._agent.version.number + 1)
            if agent is not None:
                self._served = candidate
                self._agent = agent
                logger.info("now serving %s", agent.version)
                return True
        self._note_gone()
        return False

    def _load_first(self) -> tuple[Agent, Candidate]:
        fault: DingError | None = None
        for candidate in self._choice.better(None):
            try:
                return self._blueprint.make(candidate.path), candidate
            except DingError as error:
                fault = fault or error
                self._bad[candidate.path] = candidate
        raise fault or CheckpointError(f"{self._choice.why_gone() or 'the checkpoint is not there any more'}.")

    def _load(self, candidate: Candidate, *, number: int) -> Agent | None:
        try:
            agent = self._blueprint.make(candidate.path, number)
        except DingError as error:
            self._bad[candidate.path] = candidate
            self._note(candidate.path.name, str(error))
            return None
        self._bad.pop(candidate.path, None)
        self._told -= {candidate.path.name, _UNHEARD_OF}
        self._fault = None
        return agent

    def _note_gone(self) -> None:
        why = self._choice.why_gone()
        if why is not None:
            self._note("", why)
        elif "" in self._told:
            self._told.discard("")
            self._fault = None

    def _note(self, file: str, message: str) -> None:
        """Keep a fault for `health`, and log it unless that of the same file was logged."""
        self._fault = {"file": file, "message": message, "meanwhile": str(self._agent.version)}
        if file not in self._told:
            self._told.add(file)
            logger.warning("%s Serving goes on with %s.", message.rstrip(".") + ".", self._agent.version)

    def _watch(self) -> None:
        while not self._stop.wait(self._reload_s):
            try:
                self.look()
            except Exception as error:  # whatever a foreign file makes torch or a policy do, serving goes on
                logger.debug("looking for a newer checkpoint failed", exc_info=error)
                self._note(_UNHEARD_OF, f"looking for a newer checkpoint failed: {type(error).__name__}: {error}")
