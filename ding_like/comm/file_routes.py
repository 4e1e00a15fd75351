"""Carry segments and weights through the coordinator, for workers that share no folder with it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from flask import Flask, Response, request

from ding_like.comm.messages import MAX_FILE, OCTETS, SHA256_HEADER
from ding_like.comm.refusal import RefusedError
from ding_like.comm.wire import check_id
from ding_like.utils.files import atomic_write, is_full
from ding_like.utils.interval import Interval

logger = logging.getLogger(__name__)

_WORDS = Interval(60.0, starts_due=True)

CheckRoles = Callable[[tuple[str, ...]], object]


def add_file_routes(app: Flask, check: CheckRoles, *, segments: Path | None, weights: Path | None) -> None:
    """Add PUT and GET of segments and weights below two folders; without a folder nothing is there.

    Names are ids, never paths. Collectors bring segments and fetch weights, learners the other way round.
    """

    @app.put("/v1/segments/<name>")
    def put_segment(name: str) -> Response:
        check(("collector",))
        return _take(_segment_path(segments, name))

    @app.get("/v1/segments/<name>")
    def get_segment(name: str) -> Response:
        check(("learner",))
        return _give(_segment_path(segments, name))

    @app.put("/v1/weights/<policy_id>/<version>")
    def put_weights(policy_id: str, version: str) -> Response:
        check(("learner",))
        return _take(_weights_path(weights, policy_id, version))

    @app.get("/v1/weights/<policy_id>/<version>")
    def get_weights(policy_id: str, version: str) -> Response:
        check(("collector", "learner"))
        return _give(_weights_path(weights, policy_id, version))

    @app.before_request
    def allow_large_bodies() -> None:
        if request.method == "PUT" and request.path.startswith(("/v1/segments/", "/v1/weights/")):
            request.max_content_length = MAX_FILE


def _segment_path(folder: Path | None, name: str) -> Path:
    return _folder(folder) / f"{check_id(name, 'the name of a segment')}.safetensors"


def _weights_path(folder: Path | None, policy_id: str, version: str) -> Path:
    attempt, _, number = version.partition("-")
    if not (attempt.isdecimal() and number.isdecimal()):
        raise RefusedError("malformed", "weights are named <attempt>-<version>")
    return _folder(folder) / check_id(policy_id, "policy_id") / f"{int(attempt)}-{int(number)}.safetensors"


def _folder(folder: Path | None) -> Path:
    if folder is None:
        raise RefusedError("unknown", "this coordinator takes no files: its workers share a folder")
    return folder


def _take(path: Path) -> Response:
    """Keep the body as a file. The same again is fine; other bytes under a name that is taken are not."""
    if request.mimetype != OCTETS:
        raise RefusedError("wrong_content_type", f"the body is to be {OCTETS}")
    data = request.get_data(cache=True)
    digest = hashlib.sha256(data).hexdigest()
    if digest != request.headers.get(SHA256_HEADER, ""):
        raise RefusedError("schema", f"the body's hash is not that of the header {SHA256_HEADER}")
    if path.is_file():
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise RefusedError("version_not_newer", f"{path.name} is there already, with other bytes")
        return Response(status=200)
    try:
        with atomic_write(path) as file:
            file.write(data)
    except OSError as error:
        if not is_full(error):
            raise
        message = f"the coordinator's disk is full: {len(data)} bytes of {path.name} found no room"
        if _WORDS.pass_s():  # workers try again every second
            logger.warning("%s", message)
        raise RefusedError("storage_full", message, retry_after_s=1.0) from error
    return Response(status=200)


def _give(path: Path) -> Response:
    if path.is_symlink() or not path.is_file():
        raise RefusedError("unknown", f"there is no {path.name}")
    data = path.read_bytes()
    return Response(data, mimetype=OCTETS, headers={SHA256_HEADER: hashlib.sha256(data).hexdigest()})
