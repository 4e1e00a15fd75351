"""Carry segments and weights through the coordinator, for workers that share no folder with it."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flask import Flask, Response, request

from ding_like.comm.rest.folders import read_below, write_below
from ding_like.comm.rest.http_gate import Caller, Gate
from ding_like.comm.rest.messages import MAX_FILE, OCTETS, SHA256_HEADER
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import check_id
from ding_like.comm.weights.delta import delta
from ding_like.utils.files import is_full
from ding_like.utils.interval import Interval

logger = logging.getLogger(__name__)

FILE_ROUTES = ("/v1/segments/", "/v1/weights/")
_WORDS = Interval(60.0, starts_due=True)
_VERSION = re.compile(r"(?P<attempt>[0-9]{1,15})-(?P<version>[0-9]{1,15})")


class _Place(NamedTuple):
    folder: Path
    names: tuple[str, ...]  # of folders below it, and of the file


def add_file_routes(app: Flask, gate: Gate, *, segments: Path | None, weights: Path | None) -> None:
    """Add PUT and GET of segments and weights below two folders; without a folder nothing is there.

    Names are ids, never paths. Collectors bring segments, each under its own name, and fetch weights, learners the
    other way round.
    """

    @app.put("/v1/segments/<name>")
    def put_segment(name: str) -> Response:
        caller = gate.check(("collector",), any_client=True)
        place = _segment_place(segments, name)
        _check_brings(caller)
        if caller.role is not None and not name.startswith(f"{caller.worker}."):
            raise RefusedError(
                "wrong_role", f"{caller.worker} does not bring {name}: segments are named after who does"
            )
        return _take(place)

    @app.get("/v1/segments/<name>")
    def get_segment(name: str) -> Response:
        gate.check(("learner",), any_client=True)
        return _give(_segment_place(segments, name))

    @app.put("/v1/weights/<policy_id>/<version>")
    def put_weights(policy_id: str, version: str) -> Response:
        caller = gate.check(("learner",), any_client=True)
        place = _weights_place(weights, policy_id, version)
        _check_brings(caller)
        return _take(place)

    @app.get("/v1/weights/<policy_id>/<version>")
    def get_weights(policy_id: str, version: str) -> Response:
        gate.check(("collector", "learner"), any_client=True)
        have = request.args.get("have")  # a version that the caller has: what changed since will do, if that is less
        base = None if have is None else _weights_place(weights, policy_id, have)
        return _give(_weights_place(weights, policy_id, version), base)

    @app.before_request
    def allow_large_bodies() -> None:
        if request.method == "PUT" and request.path.startswith(FILE_ROUTES):
            request.max_content_length = MAX_FILE


def _check_brings(caller: Caller) -> None:
    """Refuse files of a client that has not registered, where it is known who asks."""
    if caller.role is not None and not caller.worker:
        raise RefusedError("wrong_role", "files are brought by workers: register first")


def _segment_place(folder: Path | None, name: str) -> _Place:
    return _Place(_folder(folder), (f"{check_id(name, 'the name of a segment')}.safetensors",))


def _weights_place(folder: Path | None, policy_id: str, version: str) -> _Place:
    found = _VERSION.fullmatch(version)
    if found is None:
        raise RefusedError("malformed", "weights are named <attempt>-<version>, two numbers of up to 15 digits")
    name = f"{int(found['attempt'])}-{int(found['version'])}.safetensors"
    return _Place(_folder(folder), (check_id(policy_id, "policy_id"), name))


def _folder(folder: Path | None) -> Path:
    if folder is None:
        raise RefusedError("unknown", "this coordinator takes no files: its workers share a folder")
    return folder


def _take(place: _Place) -> Response:
    """Keep the body as a file. The same again is fine; other bytes under a name that is taken are not."""
    if request.mimetype != OCTETS:
        raise RefusedError("wrong_content_type", f"the body is to be {OCTETS}")
    data, name = request.get_data(cache=True), place.names[-1]
    digest = hashlib.sha256(data).hexdigest()
    if digest != request.headers.get(SHA256_HEADER, ""):
        raise RefusedError("schema", f"the body's hash is not that of the header {SHA256_HEADER}")
    known = read_below(*place, limit=MAX_FILE)
    if known is not None:
        if hashlib.sha256(known).hexdigest() != digest:
            raise RefusedError("version_not_newer", f"{name} is there already, with other bytes")
        return Response(status=200)
    try:
        write_below(*place, data)
    except NotADirectoryError as error:
        raise RefusedError(
            "unknown", f"{name} has no place: there is no folder of its policy, but something else"
        ) from error
    except OSError as error:
        if not is_full(error):
            raise
        message = f"the coordinator's disk is full: {len(data)} bytes of {name} found no room"
        if _WORDS.pass_s():  # workers try again every second
            logger.warning("%s", message)
        raise RefusedError("storage_full", message, retry_after_s=1.0) from error
    return Response(status=200)


def _give(place: _Place, base: _Place | None = None) -> Response:
    """Answer with a file, or with its delta to a file `base` that is there as well, if that is shorter."""
    data = read_below(*place, limit=MAX_FILE)
    if data is None:
        raise RefusedError("no_file", f"there is no {place.names[-1]}")
    old = None if base is None else read_below(*base, limit=MAX_FILE)
    if old is not None:
        changes = delta(np.frombuffer(old, np.uint8), np.frombuffer(data, np.uint8))
        data = data if changes is None else changes.tobytes()
    return Response(data, mimetype=OCTETS, headers={SHA256_HEADER: hashlib.sha256(data).hexdigest()})
