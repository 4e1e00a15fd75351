"""Policy that is served: the requests of its clients and the responses, as JSON or as safetensors, and its weights.

A request has `obs`, one observation or a batch of them, and for a recurrent policy may have `state` and `is_first`. A
response has `action`, the new `state` of a recurrent policy, and the version of the weights that chose the action. In
safetensors an entry of a dict is a tensor of its own: `obs/board`, `state/h`. Neither format can hold code.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ding_like.agent.checkpoints import Candidate, CheckpointChoice
from ding_like.agent.description import read_description
from ding_like.agent.loaded import Agent, check_finite
from ding_like.agent.observations import (
    ObservationReader,
    Rows,
    Sent,
    Space,
    by_flat_name,
    describe_space,
    quoted,
    read_is_first,
)
from ding_like.comm.rest.messages import RefusedError
from ding_like.errors import CheckpointError, ConfigError, DingError, SchemaError
from ding_like.types import Array, Json, Obs, SeesRewards
from ding_like.utils.seeding import make_rng

JSON = "application/json"
SAFETENSORS = "application/octet-stream"
_SAFETENSORS_TOO = ("application/safetensors", "application/vnd.safetensors")
VERSION_HEADER = "X-Policy-Version"
_KEYS = ("obs", "state", "is_first")


class ActRequest(NamedTuple):
    """Request of a client; only the names are checked yet."""

    obs: dict[str, Sent]  # by flat name: "" where the observation is no dict
    state: dict[str, Sent] | None
    is_first: Sent  # None: not given


class ActResponse(NamedTuple):
    """Response: columns [R, ...], R = 1 unless the client sent a batch."""

    action: Array
    state: Mapping[str, Array]
    version: Json
    is_batch: bool


def format_of(content_type: str) -> str:
    """Return the format that a content type names, JSON or SAFETENSORS. Raises RefusedError for any other."""
    if content_type == JSON:
        return JSON
    if content_type == SAFETENSORS or content_type in _SAFETENSORS_TOO:
        return SAFETENSORS
    raise RefusedError(
        "wrong_content_type",
        f'the Content-Type is {content_type[:80] or "missing"!r}, expected {JSON} with {{"obs": ...}}, or '
        f"{SAFETENSORS} with a safetensors file that has a tensor 'obs'",
    )


def read_request(body: bytes, form: str) -> ActRequest:
    """Return the request in a body. Raises RefusedError for one that cannot be parsed, or has unknown names."""
    if not body:
        raise RefusedError("malformed", "the body is empty, expected {\"obs\": ...} or a safetensors file with 'obs'")
    return _read_json(body) if form == JSON else _read_safetensors(body)


def write_response(answer: ActResponse, form: str) -> bytes:
    """Return the body of a response; without a batch axis for one observation."""
    action = answer.action if answer.is_batch else answer.action[0]
    state = {name: column if answer.is_batch else column[0] for name, column in answer.state.items()}
    if form == JSON:
        body: Json = {"action": action.tolist(), "version": answer.version}
        if state:
            body["state"] = {name: column.tolist() for name, column in state.items()}
        return json.dumps(body, allow_nan=False).encode()
    tensors = {"action": action, **{f"state/{name}": column for name, column in state.items()}}
    whole = {name: np.ascontiguousarray(tensor).reshape(np.shape(tensor)) for name, tensor in tensors.items()}
    return save(whole, metadata={"version": json.dumps(answer.version)})


def _read_json(body: bytes) -> ActRequest:
    try:
        text = body.decode(json.detect_encoding(body))
        sent = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except RefusedError:
        raise
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            "malformed", f'the body is not JSON ({str(error)[:100]}), expected {{"obs": ...}}'
        ) from error
    if not isinstance(sent, dict):
        raise RefusedError("malformed", f'the body is a JSON {type(sent).__name__}, expected {{"obs": ...}}')
    _check_names(sent)
    obs, state = by_flat_name(sent["obs"]), sent.get("state")
    state = None if state is None else by_flat_name(state)
    if "true" in text or "false" in text:
        for key, values in (("obs", obs), ("state", state or {})):
            for name, value in values.items():
                _check_truths(f"{key}/{name}" if name else key, value)
    return ActRequest(obs, state, sent.get("is_first"))


def _object(pairs: list[tuple[str, Json]]) -> Json:
    made = dict(pairs)
    if len(made) < len(pairs):
        doubled = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        raise RefusedError("malformed", f"the body has {quoted(doubled)} more than once in one object, expected once")
    return made


def _check_truths(called: str, value: Sent) -> None:
    """Refuse true and false among numbers, of which numpy would make 1 and 0."""
    kinds: set[type] = set()
    level = [value]
    while level:
        kinds |= {type(each) for each in level}
        level = [inner for each in level if isinstance(each, list) for inner in each]
    if bool in kinds and kinds & {int, float}:
        raise RefusedError("schema", f"'{called}' has true or false among its numbers, expected numbers alone")


def _refuse_constant(name: str) -> NoReturn:
    raise RefusedError("schema", f"the body has a {name}, expected finite numbers")


def _read_safetensors(body: bytes) -> ActRequest:
    try:
        tensors = load(body)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise RefusedError(
            "malformed", f"the body is not a safetensors file of numbers ({str(error)[:100]}), expected a tensor 'obs'"
        ) from error
    found: dict[str, dict[str, Sent]] = {}
    for name, tensor in tensors.items():
        first, _, rest = name.partition("/")
        found.setdefault(first, {})[rest] = tensor
    _check_names(found)
    is_first = found.get("is_first")
    if is_first is not None and set(is_first) != {""}:
        raise RefusedError(
            "schema", "'is_first' has entries of its own, expected one tensor with a flag for each observation"
        )
    return ActRequest(found["obs"], found.get("state"), None if is_first is None else is_first[""])


def _check_names(sent: Mapping[str, Sent]) -> None:
    if "obs" not in sent:
        raise RefusedError(
            "schema", f"there is no 'obs' in the body, which has {quoted(sent)}: send the observation under that name"
        )
    unknown = [name for name in sent if name not in _KEYS]
    if unknown:
        raise RefusedError("schema", f"the body has {quoted(unknown)}, expected {', '.join(_KEYS)}")


logger = logging.getLogger(__name__)

MAX_BATCH = 1024
_UNEXPECTED = "?"  # in place of a file's name, for an error of an unexpected kind
_CLOSE_S = 30.0  # for a checkpoint that is being loaded
_BYTES_PER_VALUE = 32  # JSON writes a float64 with up to 24, and something between two
_BODY_BESIDE = 1 << 17  # bytes for names, brackets and spaces
_MAX_BODY = 60 << 20  # bytes, below the limit of the server itself


class ServedVersion(NamedTuple):
    """Version of the weights that act. `number` grows by one with every checkpoint that a server loads."""

    number: int
    file: str
    train_iter: int | None  # updates that the weights have had, None where the file does not record it
    env_step: int | None

    def __str__(self) -> str:
        known = [("iteration", self.train_iter), ("env step", self.env_step)]
        return ", ".join([self.file, *(f"{name} {value:,}" for name, value in known if value is not None)])


class Blueprint:
    """All of a run but its weights: the spaces of its clients, its wrappers, and how to build its policy.

    With `client_wraps` clients apply the wrappers that need earlier steps; `on_cpu` overrides a config with a GPU.
    `import_names` are modules of the run's own that it may use. Neither the env nor its package is needed. Raises
    ConfigError for a folder without a run, and for wrappers that cannot be applied here.
    """

    def __init__(
        self,
        exp_name: str | Path,
        *,
        client_wraps: bool = False,
        on_cpu: bool = False,
        max_batch: int = MAX_BATCH,
        import_names: Sequence[str] = (),
    ) -> None:
        self.description = description = read_description(exp_name, import_names=import_names)
        if description.has_own_model:
            raise ConfigError(
                f"the run in '{exp_name}' was given its model as an object, which its folder does not hold: serve a "
                "run whose policy.model names a registered model."
            )
        self.split = description.split(remembers=False, client_wraps=client_wraps).with_action_rows()
        if description.policy.get("cuda") and not on_cpu and not torch.cuda.is_available():
            raise ConfigError("this run trained on a GPU (policy.cuda is True), and torch sees none here: give --cpu.")
        self._device = "cpu" if on_cpu else None
        self._has_warned = False
        self.reader = ObservationReader(self.split.observation_space, max_batch=max_batch)

    def make(self, path: Path, number: int = 1) -> ServedAgent:
        """Return an agent with the weights of a checkpoint.

        Raises CheckpointError for one that is missing, torn, of another model, or has numbers that are not finite.
        """
        agent = Agent(self.description, path, device=self._device, split=self.split, modes=["eval"])
        if not hasattr(agent.policy.eval_mode, "actor") and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the policy is in DI-engine's style and keeps its state itself: with every request an episode begins."
            )
        try:
            return ServedAgent(agent, self.reader, number)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error


class ServedAgent:
    """Agent of one checkpoint, which answers one request at a time and is never changed.

    Clients keep the recurrent state: they send it with a request, and the response has the new one. Without it, and
    where `is_first` is set, a row is the first step of an episode.
    """

    def __init__(self, agent: Agent, reader: ObservationReader, number: int) -> None:
        """Act once, to check that the policy works and to learn the shapes of its recurrent state."""
        self.version = ServedVersion(number, agent.version.path.name, agent.version.train_iter, agent.version.env_step)
        self._actor = agent.actor
        if isinstance(self._actor, SeesRewards):
            raise ConfigError(
                f"policy '{agent.description.policy_name}' acts by the reward of each step, which requests do not "
                "have: use ding_like.load and agent.act(obs, reward=...)."
            )
        self._wrapping = agent.wrapping
        self._reader = reader
        # Most evaluations are deterministic; `bcq`, and policies of the user's own, may draw random numbers.
        self._rng = make_rng(0, "serve")
        rows, first = reader.read(by_flat_name(reader.example())), np.ones(1, bool)
        self.state_columns: dict[str, Array] = {}  # of one row, by name; empty if the policy is not recurrent
        try:
            self.act(rows, self._wrapping.to_policy(rows, first), None, first)
        except FloatingPointError as error:
            raise CheckpointError("its weights choose actions that are not finite: its training has failed.") from error
        kept = self._actor.state_dict()
        if not all(isinstance(column, np.ndarray) and column.shape[:1] == (1,) for column in kept.values()):
            raise ConfigError(
                f"the policy's actor keeps {sorted(kept)}, which are no columns [R, ...] of arrays by name: such a "
                "state cannot be sent to a client. Let the actor's state_dict() return one row for each lane."
            )
        self.state_columns = kept
        state_space = spaces.Dict({name: _space_of(column) for name, column in kept.items()})
        self._state_reader = ObservationReader(state_space, max_batch=reader.max_batch, name="state")

    @property
    def wrappers(self) -> list[str]:
        """Names of the wrappers that are applied to observations and actions."""
        return self._wrapping.names

    def read(self, request: ActRequest) -> tuple[Rows, Obs, dict[str, Array] | None, Array]:
        """Return (rows, the policy's observations, its state, is_first [R]). Raises RefusedError for a bad request."""
        rows = self._reader.read(request.obs)
        state = None if request.state is None else self._read_state(request.state, rows)
        is_first = np.full(rows.num, state is None)
        if request.is_first is not None:
            is_first = read_is_first(request.is_first, rows)
            if state is None and not is_first.all():
                raise RefusedError(
                    "schema", "'is_first' is false somewhere, which needs the 'state' of the last answer"
                )
        return rows, self._wrapping.to_policy(rows, is_first), state, is_first

    def _read_state(self, sent: Json, rows: Rows) -> dict[str, Array]:
        if not self.state_columns:
            raise RefusedError(
                "schema", "'state' was sent to a policy that is not recurrent, expected none: leave it out"
            )
        found = self._state_reader.read(sent)
        if found[1:] != rows[1:]:
            raise RefusedError("schema", "'state' and 'obs' differ in batch size, expected the last answer's state")
        return {name: found.obs[name].astype(column.dtype) for name, column in self.state_columns.items()}

    def act(self, rows: Rows, obs: Obs, state: Mapping[str, Array] | None, is_first: Array) -> ActResponse:
        """Return the response to what `read` returned; call it from one thread at a time.

        Raises FloatingPointError where the network overflows.
        """
        actor = self._actor
        if state is None:
            actor.reset()
        else:
            actor.load_state_dict(dict(state))
        columns = actor.act(obs, lanes=np.arange(rows.num), is_first=is_first, rng=self._rng)
        check_finite("the policy chooses", {"action": columns["action"]})
        after = actor.state_dict() if self.state_columns else {}
        action = self._wrapping.to_client(columns["action"])
        return ActResponse(action, after, self.version._asdict(), rows.is_batch)


def _space_of(column: Array) -> Space:
    """Return the space of a column's rows, which holds all numbers of its kind."""
    dtype = column.dtype if column.dtype.kind in "fiu" else np.dtype(np.int8)
    return spaces.Box(-np.inf, np.inf, column.shape[1:], dtype.type)


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
        self.agent, self._served = self._load_first()  # what answers now
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
    def reader(self) -> ObservationReader:
        """Reader of the observations that clients send."""
        return self._blueprint.reader

    @property
    def max_body(self) -> int:
        """The largest allowed body: bytes of a full batch with its state, as JSON with all digits."""
        num_values = self.reader.num_values + sum(column.size for column in self.agent.state_columns.values())
        return min(_BYTES_PER_VALUE * num_values * self.reader.max_batch + _BODY_BESIDE, _MAX_BODY)

    def act(self, request: ActRequest) -> ActResponse:
        """Return the response. Raises RefusedError for a request that does not fit the policy."""
        agent = self.agent
        read = agent.read(request)
        try:
            with self._lock:
                return agent.act(*read)
        except (SchemaError, FloatingPointError) as error:
            # Found by the policy alone, such as a mask that leaves one of its actions no choice, or an overflow.
            raise RefusedError("schema", str(error)) from error

    def health(self) -> Json:
        """Return what is served and how the last reload went, as a plain dict for JSON."""
        agent, description, split = self.agent, self._blueprint.description, self._blueprint.split
        action = describe_space(split.action_space)
        if isinstance(split.action_space, spaces.Box) and split.action_space.is_bounded():
            action |= {"low": split.action_space.low.tolist(), "high": split.action_space.high.tolist()}
        return {
            "version": agent.version._asdict(),
            "env": description.env_name,
            "policy": description.policy_name,
            "obs": self.reader.describe(),
            "action": action,
            "state": {name: list(column.shape[1:]) for name, column in agent.state_columns.items()},
            "wrappers": agent.wrappers,
            "client_wrappers": list(split.client_wrappers),
            "max_batch": self.reader.max_batch,
            "reload": {"loaded": agent.version.number, "every_s": self._reload_s, "fault": self._fault},
        }

    def look(self) -> bool:
        """Load a newer checkpoint if there is one; return whether it now answers."""
        served = (self._served, self.agent.version.train_iter)
        for candidate in self._choice.better(served):
            if self._bad.get(candidate.path) == candidate:
                continue
            agent = self._load(candidate, number=self.agent.version.number + 1)
            if agent is not None:
                self._served = candidate
                self.agent = agent
                logger.info("now serving %s", agent.version)
                return True
        why = self._choice.why_gone()
        if why is not None:
            self._note("", why)
        elif self._fault is not None and not self._fault["file"]:
            self._fault = None
        return False

    def _load_first(self) -> tuple[ServedAgent, Candidate]:
        fault: DingError | None = None
        for candidate in self._choice.better(None):
            try:
                return self._blueprint.make(candidate.path), candidate
            except DingError as error:
                fault = fault or error
                self._bad[candidate.path] = candidate
        raise fault or CheckpointError(f"{self._choice.why_gone() or 'the checkpoint was deleted'}.")

    def _load(self, candidate: Candidate, *, number: int) -> ServedAgent | None:
        try:
            agent = self._blueprint.make(candidate.path, number)
        except DingError as error:
            self._bad[candidate.path] = candidate
            self._note(candidate.path.name, str(error))
            return None
        self._bad.pop(candidate.path, None)
        self._fault = None
        return agent

    def _note(self, file: str, message: str) -> None:
        """Keep a fault for `health`, and log it unless it is that of before."""
        is_new = self._fault is None or (self._fault["file"], self._fault["message"]) != (file, message)
        self._fault = {"file": file, "message": message, "meanwhile": str(self.agent.version)}
        if is_new:
            logger.warning("%s Serving goes on with %s.", message.rstrip(".") + ".", self.agent.version)

    def _watch(self) -> None:
        while not self._stop.wait(self._reload_s):
            try:
                self.look()
            except Exception as error:  # a broken file makes torch or a policy raise anything; serving goes on
                logger.debug("looking for a newer checkpoint failed", exc_info=error)
                self._note(_UNEXPECTED, f"looking for a newer checkpoint failed: {type(error).__name__}: {error}")
