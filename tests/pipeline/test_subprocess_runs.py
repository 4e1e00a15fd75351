"""Serial runs whose envs have processes of their own: resumed after a kill, and leaving nothing when interrupted."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import resume_pipeline, serial_pipeline
from tests.marked import start_marked, wait_until_gone
from tests.pipeline.test_resume import equal_tensors, lines, wait_for, weights
from tests.pipeline.test_serial import make_configs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

RUN = """
import sys

from tests.pipeline.test_subprocess_runs import configs, resume_pipeline, serial_pipeline

if sys.argv[1] == "new":
    serial_pipeline(configs(exp_name=sys.argv[2]), seed=7, max_env_step=int(sys.argv[3]))
else:
    resume_pipeline(sys.argv[2])
"""


def configs(*, exp_name: str = "exp", **manager: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configs of a small run with the manager `subprocess`, saved every 40 env steps."""
    main, create = make_configs()
    main["exp_name"] = exp_name
    main["resume"] = dict(save_every_env_steps=40)
    main["env"]["manager"] = manager
    create["env_manager"] = dict(type="subprocess")
    return main, create


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_run_with_env_processes_is_resumed_exactly(tmp_path: Path, mark: str) -> None:
    serial_pipeline(configs(), seed=7, max_env_step=3000, exp_name="whole")
    rng = random.Random(0)
    for kill in range(3):
        exp = f"exp{kill}"
        with start_marked(mark, "-c", RUN, "new", exp, "3000", stderr=subprocess.STDOUT) as process:
            wait_for(tmp_path / exp / "ckpt/resume", process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.0, 0.5))
            assert process.poll() is None, "the run ended before it could be killed"
            process.kill()
            process.communicate()
        with start_marked(mark, "-c", RUN, "resume", exp, stderr=subprocess.STDOUT) as process:
            said, _ = process.communicate(timeout=120)

        assert equal_tensors(weights(tmp_path / exp), weights(tmp_path / "whole")), said
        assert lines(tmp_path / exp) == lines(tmp_path / "whole"), said
    assert wait_until_gone(mark) == set()


@pytest.mark.slow
def test_a_run_that_does_not_wait_for_all_lanes_drops_open_episodes_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serial_pipeline(configs(wait_num=2), seed=7, max_env_step=333, exp_name="exp")

    with caplog.at_level("WARNING"):
        resume_pipeline("exp", max_env_step=800)

    said = "envs [0, 1, 2, 3] could not be brought back to where they were; each begins a new episode"
    assert caplog.text.count(said) == 1
    dropped = [row["total_dropped_episode_count"] for row in lines(tmp_path / "exp") if row["source"] == "collector"]
    assert dropped[0] == 0 and dropped[-1] == 4
    assert lines(tmp_path / "exp")[-1]["env_step"] > 600
