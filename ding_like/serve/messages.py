"""Requests of a policy's clients and the responses, as JSON or as safetensors.

A request has `obs`, one observation or a batch of them, and for a recurrent policy may have `state` and `is_first`. A
response has `action`, the new `state` of a recurrent policy, and the version of the weights that chose the action. In
safetensors an entry of a dict is a tensor of its own: `obs/board`, `state/h`. Neither format can hold code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ding_like.agent.observations import Sent, by_flat_name, quoted
from ding_like.comm.rest.wire import RefusedError
from ding_like.types import Array, Json

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
