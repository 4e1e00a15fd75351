"""Ray is loaded in one place, which says how to install it and keeps its pages off the console."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ding_like.comm.ray.actors import ENVIRONMENT, load_ray
from ding_like.errors import ConfigError

ROOT = Path(__file__).parents[3]


def run(code: str, **environment: str) -> str:
    """Return what a fresh Python prints."""
    env = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**env, **environment}, cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_where_ray_is_missing_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("ding_like.comm.ray.actors.ENVIRONMENT", {})

    with pytest.raises(ConfigError, match=r'pip install "ding-like\[ray\]"'):
        load_ray()


def test_schemes_and_their_workers_load_without_ray() -> None:
    code = "import sys, ding_like.comm.ray.actors, ding_like.pipeline.ray.scheme; print('ray' in sys.modules)"

    assert run(code) == "False\n"


@pytest.mark.ray
@pytest.mark.slow
def test_workers_are_told_to_run_at_normal_priority_unless_the_user_has_said_otherwise() -> None:
    code = "from ding_like.comm.ray.actors import load_ray; load_ray(); import os; print(os.environ[{!r}])"
    code = code.format("RAY_worker_niceness")

    assert run(code) == "0\n"
    assert run(code, RAY_worker_niceness="5") == "5\n"


@pytest.mark.ray
@pytest.mark.slow
def test_pages_of_the_node_manager_are_not_printed_and_lines_of_workers_are() -> None:
    code = """
from ding_like.comm.ray.actors import load_ray
ray = load_ray()
assert load_ray() is ray
for pid, line in (("raylet", "a page"), (17, "a line")):
    ray._private.worker.print_to_stdstream({"lines": [line], "pid": pid, "is_err": False, "ip": "", "job": ""}, True)
"""

    assert run(code) == "a line\n"
