"""Say what an inference client and a server write to each other: requests for R lanes, and what is answered.

| kind    | from   | head                                                    | arrays                              |
|---------|--------|---------------------------------------------------------|-------------------------------------|
| infer   | client | id, client, run_id, least (a version, or null), follows | obs..., columns/...                 |
| reply   | server | id, version, server                                     | output                              |
| unknown | server | id                                                      |                                     |
| error   | server | id (null: of what cannot be read), text, is_final       |                                     |

Of a recurrent network a request has besides: `lanes` [R, 2], the number of each lane and whether it begins an episode,
and state/... [R, S...] where the server lacks it; a reply has state/..., that after the step.
`follows` names the server whose reply came before this request: it alone has the recurrent state that the client
counts on. Any other answers 'unknown', and the client sends the request again with the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ding_like.comm.channels import Version
from ding_like.comm.json_fields import count_of, name_of
from ding_like.comm.json_version import version_of
from ding_like.comm.zmq.frames import Frame, Message, decode, encode
from ding_like.data.obs import columns_to_obs, obs_to_columns
from ding_like.errors import CommError
from ding_like.types import Array, Obs

MAX_NBYTES = 2**30  # of the arrays of a message
MAX_LANES = 2**16  # of a client: the highest number of one
_MAX_NAME = 64  # characters
_OBS, _COLUMNS, _STATE = "obs", "columns", "state"


class Request(NamedTuple):
    """Hold a request for R lanes."""

    client: str
    run_id: int
    id: int  # of the client's requests, each higher than the one before
    least: Version | None  # weights that have to answer it at least
    follows: str  # the server that answered the request before; "": none
    inputs: Mapping[str, Array]  # [R, ...] by the name they travel under: observations and columns
    lanes: Array | None  # [R] int64; None: of a network that remembers nothing
    is_first: Array | None  # [R] bool
    state: Mapping[str, Array]  # [R, S...] before the step; empty where the server is to have it

    @property
    def obs(self) -> Obs:
        """Return the observations [R, O...]."""
        return obs_of(self.inputs)

    @property
    def rows(self) -> int:
        """Return R."""
        return len(next(iter(self.inputs.values())))


class Reply(NamedTuple):
    """Hold what a network said of R lanes, and the version of its weights."""

    output: Array  # [R, ...]
    state: Mapping[str, Array]  # [R, S...] after the step
    version: Version


class Refusal(NamedTuple):
    """Say why a request is not answered; a final one is not worth another try."""

    text: str
    is_final: bool


def obs_of(inputs: Mapping[str, Array]) -> Obs:
    """Return the observations among inputs."""
    obs: Obs = columns_to_obs(_OBS, inputs)
    return obs


def columns_of(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the columns among inputs, by their own names."""
    return _under(_COLUMNS, inputs)


def inputs_of(obs: Obs, columns: Mapping[str, Array]) -> dict[str, Array]:
    """Return observations and columns by the names that they travel under."""
    inputs = obs_to_columns(_OBS, obs)
    for name, column in columns.items():
        inputs[f"{_COLUMNS}/{name}"] = column
    return inputs


def encode_request(request: Request) -> list[Frame]:
    """Return the frames of a request: views of its arrays. Raises CommError for arrays that are not of numbers."""
    head = {
        "kind": "infer",
        "id": request.id,
        "client": request.client,
        "run_id": request.run_id,
        "least": request.least,
        "follows": request.follows,
    }
    arrays = dict(request.inputs)
    if request.lanes is not None and request.is_first is not None:
        arrays["lanes"] = np.stack([request.lanes, request.is_first], axis=1)
    for name, column in request.state.items():
        arrays[f"{_STATE}/{name}"] = column
    return encode(head, arrays)


def decode_request(frames: Sequence[Frame], *, max_nbytes: int = MAX_NBYTES) -> Request:
    """Return the request that frames hold. Raises CommError for anything that `encode_request` does not make."""
    message = decode(frames, max_nbytes=max_nbytes)
    head, arrays = message.head, message.arrays
    if message.kind != "infer":
        raise CommError(f"a message '{message.kind[:40]}' came where requests do; expected 'infer'.")
    lanes, state = arrays.pop("lanes", None), _under(_STATE, arrays)
    inputs = {name: array for name, array in arrays.items() if not name.startswith(f"{_STATE}/")}
    if not any(name == _OBS or name.startswith(f"{_OBS}/") for name in inputs):
        raise CommError("a request has no observations; expected 'obs', or 'obs/...' for each entry.")
    rows = inputs[next(iter(inputs))].shape[:1]
    for name, array in inputs.items():
        if name != _OBS and not name.startswith((f"{_OBS}/", f"{_COLUMNS}/")):
            raise CommError(f"a request has the array '{name[:40]}'; expected observations and columns.")
        _check_rows(name, array, rows)
    for name, array in state.items():
        _check_rows(name, array, rows)
    number, is_first = (None, None) if lanes is None else _lanes(lanes, rows)
    client, follows = (
        name_of(head, "client", most=_MAX_NAME),
        name_of(head, "follows", most=_MAX_NAME, may_be_empty=True),
    )
    least = None if head.get("least") is None else version_of(head, "least")
    run_id, request_id = count_of(head, "run_id"), count_of(head, "id")
    return Request(client, run_id, request_id, least, follows, inputs, number, is_first, state)


def _check_rows(name: str, array: Array, rows: tuple[int, ...]) -> None:
    if not rows or not rows[0] or array.shape[:1] != rows:
        raise CommError(f"a request has '{name[:40]}' of shape {array.shape}, expected as many rows as lanes: {rows}.")


def _lanes(lanes: Array, rows: tuple[int, ...]) -> tuple[Array, Array]:
    """Return (lanes [R], which begin an episode [R])."""
    if lanes.dtype != np.int64 or lanes.shape != (*rows, 2):
        raise CommError(f"a request has lanes {lanes.dtype} of shape {lanes.shape}; expected int64 {[*rows, 2]}.")
    number, is_first = lanes.T
    if int(number.min()) < 0 or int(number.max()) >= MAX_LANES or int(is_first.min()) < 0 or int(is_first.max()) > 1:
        raise CommError(f"a request names lanes that there are not; expected numbers from 0 to {MAX_LANES - 1:,}.")
    return number, is_first.astype(np.bool_)


def encode_reply(number: int, reply: Reply, *, server: str) -> list[Frame]:
    """Return the frames of the reply to request `number`."""
    arrays = {"output": reply.output}
    for name, column in reply.state.items():
        arrays[f"{_STATE}/{name}"] = column
    return encode({"kind": "reply", "id": number, "version": reply.version, "server": server}, arrays)


def encode_refusal(number: int | None, refusal: Refusal) -> list[Frame]:
    """Return the frames that refuse request `number`; None: one that could not be read."""
    head = {"kind": "error", "id": number, "text": refusal.text[:2_000], "is_final": refusal.is_final}
    return encode(head)


def encode_unknown(number: int) -> list[Frame]:
    """Return the frames that ask for the recurrent state which request `number` goes on from."""
    return encode({"kind": "unknown", "id": number})


def decode_answer(frames: Sequence[Frame]) -> tuple[int | None, str, Reply | Refusal | None]:
    """Return (id, the server's name, a reply, a refusal, or None where the server asks for state).

    Raises CommError for anything else.
    """
    message = decode(frames, max_nbytes=MAX_NBYTES)
    head = message.head
    if message.kind == "reply":
        output = message.arrays.get("output")
        if output is None or not output.ndim:
            raise CommError("a reply has no output; expected an array [R, ...].")
        return count_of(head, "id"), name_of(head, "server", most=_MAX_NAME), _reply(message, output)
    if message.kind == "unknown":
        return count_of(head, "id"), "", None
    if message.kind == "error":
        number = None if head.get("id") is None else count_of(head, "id")
        return number, "", Refusal(str(head.get("text")), head.get("is_final") is True)
    raise CommError(f"a message '{message.kind[:40]}' came where answers do.")


def _reply(message: Message, output: Array) -> Reply:
    # Copied: what a message holds cannot be written to, and torch warns of such arrays.
    return Reply(output.copy(), _under(_STATE, message.arrays), version_of(message.head, "version"))


def _under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    start = f"{prefix}/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}
