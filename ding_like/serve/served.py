"""Serve the newest checkpoint: a newer one is loaded beside the old and replaces it between two answers."""

from __future__ import annotations

import logging
import math
import threading
from pathlib import Path
from typing import Any

from ding_like.agent.checkpoints import Candidate, CheckpointChoice
from ding_like.agent.messages import ActRequest, ActResponse
from ding_like.comm.rest.refusal import RefusedError
from ding_like.errors import CheckpointError, DingError, SchemaError
from ding_like.serve.agent import Agent, Blueprint, describe_agent

logger = logging.getLogger(__name__)

_UNEXPECTED = "?"  # in place of a file's name, for an error of an unexpected kind
_CLOSE_S = 30.0  # for a checkpoint that is being loaded
_BYTES_PER_VALUE = 32  # JSON writes a float64 with up to 24, and something between two
_BODY_BESIDE = 1 << 17  # bytes for names, brackets and spaces
_MAX_BODY = 60 << 20  # bytes, below the limit of the server itself


class ServedPolicy:
    """Policy that answers requests with the chosen checkpoint, and looks for a newer one every `reload_s` seconds.

    A thread loads a newer checkpoint into a policy of its own and tries it once, while the old one goes on answering;
    then it replaces the old one. A checkpoint that is torn, deleted or of another model changes nothing. All rows of a
    response are of the version that it names, and a request that follows another is never answered by older weights.

    Use it with `with`, or call `close`. Raises CheckpointError if the first checkpoint cannot be served.
    """

    def __init__(self, blueprint: Blueprint, choice: CheckpointChoice, *, reload_s: float = 1.0) -> None:
        self._blueprint = blueprint
        self._choice = choice
        self._reload_s = reload_s
        self._lock = threading.Lock()  # one forward pass at a time: actors keep scratch memory
        self._fault: dict[str, str] | None = None
        self._bad: dict[Path, Candidate] = {}  # candidates that could not be loaded and are not tried again
        self._logged: set[str] = set()  # files whose fault was logged, until they load again
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
        """The agent that answers now."""
        return self._agent

    @property
    def num_values(self) -> int:
        """The count of numbers in one observation."""
        return self._blueprint.reader.num_values

    def example(self) -> Any:
        """Return an example of an observation, for JSON."""
        return self._blueprint.reader.example()

    @property
    def max_body(self) -> int:
        """The largest allowed body: bytes of a full batch with its state, as JSON with all digits."""
        reader, agent = self._blueprint.reader, self._agent
        num_values = reader.num_values + sum(math.prod(shape) for shape, _ in agent.state_columns.values())
        return min(_BYTES_PER_VALUE * num_values * reader.max_batch + _BODY_BESIDE, _MAX_BODY)

    def act(self, request: ActRequest) -> ActResponse:
        """Return the response. Raises RefusedError for a request that does not fit the policy."""
        agent = self._agent
        read = agent.read(request)
        try:
            with self._lock:
                return agent.act(*read)
        except (SchemaError, FloatingPointError) as error:
            # Found by the policy alone, such as a mask that leaves one of its actions no choice, or an overflow.
            raise RefusedError("schema", str(error)) from error

    def health(self) -> dict[str, Any]:
        """Return what is served and how the last reload went, as a plain dict for JSON."""
        agent = self._agent
        return {
            "version": agent.version.describe(),
            **describe_agent(agent, self._blueprint),
            "reload": {"loaded": agent.version.number, "every_s": self._reload_s, "fault": self._fault},
        }

    def look(self) -> bool:
        """Load a newer checkpoint if there is one; return whether it now answers."""
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
        raise fault or CheckpointError(f"{self._choice.why_gone() or 'the checkpoint was deleted'}.")

    def _load(self, candidate: Candidate, *, number: int) -> Agent | None:
        try:
            agent = self._blueprint.make(candidate.path, number)
        except DingError as error:
            self._bad[candidate.path] = candidate
            self._note(candidate.path.name, str(error))
            return None
        self._bad.pop(candidate.path, None)
        self._logged -= {candidate.path.name, _UNEXPECTED}
        self._fault = None
        return agent

    def _note_gone(self) -> None:
        why = self._choice.why_gone()
        if why is not None:
            self._note("", why)
        elif "" in self._logged:
            self._logged.discard("")
            self._fault = None

    def _note(self, file: str, message: str) -> None:
        """Keep a fault for `health`, and log it unless one of the same file was logged."""
        self._fault = {"file": file, "message": message, "meanwhile": str(self._agent.version)}
        if file not in self._logged:
            self._logged.add(file)
            logger.warning("%s Serving goes on with %s.", message.rstrip(".") + ".", self._agent.version)

    def _watch(self) -> None:
        while not self._stop.wait(self._reload_s):
            try:
                self.look()
            except Exception as error:  # a broken file makes torch or a policy raise anything; serving goes on
                logger.debug("looking for a newer checkpoint failed", exc_info=error)
                self._note(_UNEXPECTED, f"looking for a newer checkpoint failed: {type(error).__name__}: {error}")
