"""Define what an inference client and a server write to each other: requests for R lanes, and what is answered.

| kind  | from   | head                                          | arrays                            |
|-------|--------|-----------------------------------------------|-----------------------------------|
| infer | client | id, client, run_id, least (a version or null) | obs..., columns/..., state/...    |
| reply | server | id, version                                   | output, state/... (after the step) |
| error | server | id (null: it cannot be read), text, is_final  |                                   |

A request of a recurrent network brings the state before the step, and the reply the state after it: servers remember
nothing, so that any of them can answer any request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ding_like.comm.channels import Version
from ding_like.comm.json_fields import count_of, is_count, name_of
from ding_like.comm.json_version import version_of
from ding_like.comm.zmq.frames import Frame, decode, encode
from ding_like.data.obs import columns_to_obs, obs_to_columns
from ding_like.errors import CommError
from ding_like.types import Array, Obs

MAX_NBYTES = 2**28  # of the arrays of a message
_MAX_NAME = 64  # characters
OBS, COLUMNS, STATE = "obs", "columns", "state"


class Request(NamedTuple):
    """A request for R lanes."""

    client: str
    run_id: int
    id: int  # of the client's requests, each higher than the one before
    least: Version | None  # the oldest weights that may answer it
    inputs: Mapping[str, Array]  # [R, ...] by the name they travel under: observations, columns and state

    @property
    def obs(self) -> Obs:
        """The observations [R, O...]."""
        return obs_of(self.inputs)

    @property
    def rows(self) -> int:
        """The number of lanes, R."""
        return len(next(iter(self.inputs.values())))


class Reply(NamedTuple):
    """What a network computed for R lanes, and the version of its weights."""

    output: Array  # [R, ...]
    state: Mapping[str, Array]  # [R, S...] after the step
    version: Version


class Refusal(NamedTuple):
    """The reason why a request is not answered; a final one is not worth another try."""

    text: str
    is_final: bool


def inputs_of(obs: Obs, columns: Mapping[str, Array], state: Mapping[str, Array]) -> dict[str, Array]:
    """Return observations, columns and state by the names that they travel under."""
    inputs = obs_to_columns(OBS, obs)
    for prefix, arrays in ((COLUMNS, columns), (STATE, state)):
        inputs.update({f"{prefix}/{name}": array for name, array in arrays.items()})
    return inputs


def obs_of(inputs: Mapping[str, Array]) -> Obs:
    """Return the observations among inputs."""
    obs: Obs = columns_to_obs(OBS, inputs)
    return obs


def under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays whose names begin with `prefix` and a slash, by the rest of their names."""
    start = f"{prefix}/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}


def encode_request(request: Request) -> list[Frame]:
    """Return the frames of a request: views of its arrays. Raises CommError for arrays that are not of numbers."""
    own = {"id": request.id, "client": request.client, "run_id": request.run_id, "least": request.least}
    return encode({"kind": "infer", **own}, request.inputs)


def decode_request(frames: Sequence[Frame], *, max_nbytes: int = MAX_NBYTES) -> Request:
    """Return the request that frames hold. Raises CommError for anything that `encode_request` does not make."""
    message = decode(frames, max_nbytes=max_nbytes)
    head, inputs = message.head, message.arrays
    if message.kind != "infer":
        raise CommError(f"a message '{message.kind[:40]}' came where requests do; expected 'infer'.")
    if not any(name == OBS or name.startswith(f"{OBS}/") for name in inputs):
        raise CommError("a request has no observations; expected 'obs', or 'obs/...' for each entry.")
    rows = next(iter(inputs.values())).shape[:1]
    for name, array in inputs.items():
        if name != OBS and not name.startswith((f"{OBS}/", f"{COLUMNS}/", f"{STATE}/")):
            raise CommError(f"a request has the array '{name[:40]}'; expected observations, columns and state.")
        if not rows or not rows[0] or array.shape[:1] != rows:
            raise CommError(f"a request has '{name[:40]}' of shape {array.shape}, expected a row for each of {rows}.")
    least = None if head.get("least") is None else version_of(head, "least")
    client = name_of(head, "client", most=_MAX_NAME)
    return Request(client, count_of(head, "run_id"), count_of(head, "id"), least, inputs)


def id_of(frames: Sequence[Frame]) -> int | None:
    """Return the id of a request that is wrong otherwise; None where it has none."""
    try:
        number = decode(frames, max_nbytes=MAX_NBYTES).head.get("id")
    except CommError:
        return None
    return number if is_count(number) else None


def encode_answer(number: int | None, answer: Reply | Refusal) -> list[Frame]:
    """Return the frames that answer request `number`; None: one that could not be read."""
    if isinstance(answer, Refusal):
        return encode({"kind": "error", "id": number, "text": answer.text[:2_000], "is_final": answer.is_final})
    arrays = {"output": answer.output, **{f"{STATE}/{name}": column for name, column in answer.state.items()}}
    return encode({"kind": "reply", "id": number, "version": answer.version}, arrays)


def decode_answer(frames: Sequence[Frame]) -> tuple[int | None, Reply | Refusal]:
    """Return (id, reply or refusal). Raises CommError for anything else."""
    message = decode(frames, max_nbytes=MAX_NBYTES)
    head = message.head
    if message.kind == "reply":
        output = message.arrays.get("output")
        if output is None or not output.ndim:
            raise CommError("a reply has no output; expected an array [R, ...].")
        # Copied: what a message holds cannot be written to.
        return count_of(head, "id"), Reply(output.copy(), under(STATE, message.arrays), version_of(head, "version"))
    if message.kind == "error":
        number = None if head.get("id") is None else count_of(head, "id")
        return number, Refusal(str(head.get("text")), head.get("is_final") is True)
    raise CommError(f"a message '{message.kind[:40]}' came where answers do.")
