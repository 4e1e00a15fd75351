"""Schedules, and what importing them costs."""

import subprocess
import sys

import pytest

from ding_like.errors import ConfigError
from ding_like.rl_utils import constant, linear_schedule


def test_constant_says_its_value_at_every_step():
    schedule = constant(0.5)

    assert [schedule(step) for step in (0, 10**9)] == [0.5, 0.5]


def test_linear_schedule_rises_as_well_as_it_falls():
    schedule = linear_schedule(0.4, 1.0, num_steps=4)

    assert [schedule(step) for step in (0, 1, 4, 5)] == pytest.approx([0.4, 0.55, 1.0, 1.0])


def test_linear_schedule_refuses_zero_steps():
    with pytest.raises(ConfigError, match="num_steps above 0, got 0"):
        linear_schedule(1.0, 0.0, num_steps=0)


def test_rollout_arithmetic_loads_no_torch():
    code = "import sys, ding_like.rl_utils; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
