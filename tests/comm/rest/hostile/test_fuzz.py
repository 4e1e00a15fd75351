"""A little of what `make fuzz` does for ten minutes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.comm.rest.hostile.fuzz import REQUESTS, send_one
from tests.comm.rest.hostile.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("fuzz"))
    yield made
    made.close()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=REQUESTS)
def test_any_request_is_answered_and_none_breaks_the_coordinator(stage: Stage, request: Any) -> None:
    assert 200 <= send_one(stage, request) < 500
    assert stage.ask("GET", "/v1/hello", b"") == 200
