"""That a process has ended is waited for without being its parent."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ding_like.utils.processes import wait_for_end

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems cannot tell")
FAR_S = 60.0


def test_waiting_for_a_process_ends_with_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        wait_for_end(process.pid, timeout_s=0.05)
        assert process.poll() is None
        process.kill()
        wait_for_end(process.pid, timeout_s=10 * FAR_S)

        assert process.wait(FAR_S) == -9


def test_a_process_that_is_gone_is_not_waited_for() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait(FAR_S)
    wait_for_end(process.pid, timeout_s=10 * FAR_S)
