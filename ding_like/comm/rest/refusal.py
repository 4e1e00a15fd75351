"""Errors of refused requests, on both sides of the wire."""

from __future__ import annotations

from typing import Any

from ding_like.errors import CommError

# Code -> HTTP status.
STATUS = {
    "malformed": 400,
    "bad_key": 401,
    "bad_clock": 401,
    "wrong_role": 403,
    "unknown": 404,
    "no_file": 404,
    "wrong_method": 405,
    "stale_attempt": 409,
    "stale_epoch": 409,
    "version_not_newer": 409,
    "old_message": 409,
    "name_taken": 409,
    "finished": 410,
    "too_large": 413,
    "wrong_content_type": 415,
    "schema": 422,
    "wrong_protocol": 426,
    "quota": 429,
    "internal": 500,
    "not_ready": 503,
    "storage_full": 503,
}
RETRYABLE = {"quota", "not_ready", "storage_full"}


class RefusedError(CommError):
    """The coordinator refuses a request; `code` is one of STATUS."""

    def __init__(
        self, code: str, message: str, *, retry_after_s: float | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = STATUS[code]
        self.message = message
        self.retryable = code in RETRYABLE
        self.retry_after_s = retry_after_s
        self.details = details or {}


class UnreachableError(CommError):
    """The coordinator has not answered for `retry_s`."""
