"""Send made-up requests to every route: `python -m tests.comm.rest.hostile.test_fuzz [--minutes 10]`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.comm.rest.hostile.stage import Stage, memory

_TEXT = st.text(max_size=40)
_IDS = st.sampled_from(["{collector}", "{learner}", "{collect}", "{learn}", "{buffer}", "{policy}", "x", "..", ""])
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT | _IDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_NAMES = (
    "attempt", "info", "result", "code", "message", "trace", "segments", "name", "rows", "sha256", "nbytes",
    "policy_version", "env_steps", "stats", "task_id", "batch_size", "num_batches", "wait_s",
    "cur_learner_iter", "have_segments_up_to", "learn_iter", "places", "unique_ids", "priorities", "bad_segments",
    "version", "role", "host", "pid", "package", "incarnation", "resources", "reason", "state",
)  # fmt: skip
BODIES = st.dictionaries(st.sampled_from(_NAMES), _PLAIN | st.just(1), max_size=8)
PATHS = st.sampled_from(
    [
        "/v1/hello", "/v1/healthz", "/v1/status", "/v1/workers", "/v1/workers/{w}/heartbeat", "/v1/workers/{w}",
        "/v1/tasks/claim", "/v1/tasks/{w}/data", "/v1/tasks/{w}/info", "/v1/tasks/{w}/finish", "/v1/tasks/{w}/fail",
        "/v1/buffers/{w}/sample", "/v1/buffers/{w}/update", "/v1/policies/{w}", "/v1/segments/{w}",
        "/v1/weights/{w}/{w}", "/{w}",
    ]
)  # fmt: skip
METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
REQUESTS = st.tuples(METHODS, PATHS, _IDS, BODIES, st.sampled_from(["collector", "learner", "admin"]))


def send_one(stage: Stage, request: Any) -> int:
    """Send one request and return the status; an answer there must be, and none may be a fault of ours."""
    method, path, name, body, role = request
    text = json.dumps(body)
    for key, value in stage.names.items():
        name, text = name.replace("{" + key + "}", value), text.replace("{" + key + "}", value)
    path = path.replace("{w}", name or "x")
    status = stage.ask(method, path, text.encode(), role=role, headers={"X-Fuzz": "1"})
    assert status != 0 and status != 500, (method, path, text, role, status)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    until = time.monotonic() + 60.0 * parser.parse_args().minutes
    statuses: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        used = memory()

        @settings(
            max_examples=2000,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(REQUESTS)
        def send(request: Any) -> None:
            statuses[send_one(stage, request)] += 1

        while time.monotonic() < until:
            send()
        grown = memory() - used
        stage.close()
    print(f"{statuses.total():,} requests, statuses {dict(sorted(statuses.items()))}, memory +{grown / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())


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
