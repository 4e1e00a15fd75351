"""What becomes of env processes, and of scripts that start them, when the process that started them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RUN = """
import functools, sys
import numpy as np
from ding_like.envs.manager.subprocess import SubprocessEnvManager
from tests.envs.faulty_env import DeadlyEnv

faults = {(0, 20): sys.argv[1]} if len(sys.argv) > 1 else {}
env_fn = [functools.partial(DeadlyEnv, lane, faults=faults, script=((10**9, "terminated"),)) for lane in range(3)]
with SubprocessEnvManager(env_fn, dict(envs_per_process=2)) as manager:
    manager.launch()
    print("running", flush=True)
    while True:
        manager.step(np.arange(3), np.zeros(3, np.int64))
"""

MARK = "DING_TEST_MARK"


def processes_with(mark: str) -> set[int]:
    """Return the processes that inherited `mark` in their environment, zombies left out."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or is not ours to look at
            if f"{MARK}={mark}".encode() in environ.read_bytes():
                found.add(int(environ.parent.name))
    return found


def wait_until_gone(mark: str, timeout_s: float = 60.0) -> set[int]:
    """Return the processes that are still there after a while."""
    deadline = time.monotonic() + timeout_s
    while (left := processes_with(mark)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


@pytest.fixture
def mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    for pid in processes_with(mark):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def start(mark: str, *args: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), MARK: mark},
        cwd=cwd,
    )


def wait_for_line(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "hang", "hang_with_the_interpreter"])
def test_env_processes_end_with_a_manager_that_is_killed_even_if_they_hang(mark: str, fault: str | None) -> None:
    with start(mark, "-c", RUN, *([fault] if fault else [])) as process:
        wait_for_line(process)
        assert len(processes_with(mark)) == 3

        process.kill()
        process.communicate()

    assert wait_until_gone(mark) == set()


@pytest.mark.slow
def test_ctrl_c_ends_a_run_and_its_env_processes(mark: str) -> None:
    with start(mark, "-c", RUN) as process:
        wait_for_line(process)

        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert "KeyboardInterrupt" in said
    assert wait_until_gone(mark) == set()


# A script as people write them: no guard, imports at the top that env processes have no use for.
PLAIN_SCRIPT = """
import functools
import ding_like.policy  # imports torch
import numpy as np
from ding_like.envs.manager.subprocess import SubprocessEnvManager
from tests.envs.faulty_env import ProbeEnv

manager = SubprocessEnvManager([ProbeEnv] * 2)
manager.launch()
print("torch in env processes:", manager.obs[:, 4].tolist())
manager.close()
"""

ENV_IN_SCRIPT = """
import numpy as np
from ding_like.envs.manager.subprocess import SubprocessEnvManager
from tests.envs.faulty_env import ProbeEnv

class MyEnv(ProbeEnv):
    pass

with SubprocessEnvManager([MyEnv] * 2) as manager:
    manager.launch()
    print("ready:", manager.ready.tolist())
"""


def run_script(mark: str, folder: Path, text: str) -> tuple[str, str]:
    (folder / "train.py").write_text(text)
    with start(mark, "train.py", cwd=folder) as process:
        return process.communicate(timeout=60)


@pytest.mark.slow
def test_a_script_needs_no_guard_and_its_imports_stay_out_of_env_processes(mark: str, tmp_path: Path) -> None:
    said, _ = run_script(mark, tmp_path, PLAIN_SCRIPT)

    assert said == "torch in env processes: [0.0, 0.0]\n"


@pytest.mark.slow
def test_an_env_class_in_a_script_needs_no_guard_either(mark: str, tmp_path: Path) -> None:
    said, _ = run_script(mark, tmp_path, ENV_IN_SCRIPT)

    assert said == "ready: [True, True]\n"
