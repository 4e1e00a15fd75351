"""A run whose envs give numbers that no loss can take goes on without their actor."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from ding_like.comm.workers.failures import FailurePolicy
from ding_like.envs.wrappers import wrap
from ding_like.pipeline.settings import SeedSettings
from tests.pipeline.ray import runs
from tests.pipeline.seed import runs as seed_runs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


class Spoiled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose rewards are finite, and their squares are not, in the thread of the second actor."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *ended = self.env.step(action)
        return obs, 3e38 if threading.current_thread().name == "actor2" else float(reward), *ended


def spoiled(cfg: Any) -> gymnasium.Env[Any, Any]:
    return wrap(Spoiled(gymnasium.make("CartPole-v1")), [])


@pytest.mark.slow
def test_a_run_goes_on_without_an_actor_whose_rewards_no_loss_can_take(caplog: pytest.LogCaptureFixture) -> None:
    settings = SeedSettings(actor_processes=1, actor_threads=2, failure=FailurePolicy(when_spent="shrink"))
    configs = runs.dqn(random_collect_size=0, nstep=1)

    seed_runs.seed(configs, settings, max_env_step=3000, env_setting=(spoiled, [{}] * 4, [{}] * 2))

    assert runs.result("seed")["env_step"] >= 3000
    lines = [json.loads(line) for line in Path("seed/metrics.jsonl").read_text().splitlines()]
    assert max(line.get("refused_segments/actor2", 0) for line in lines) >= 3
    assert not any("refused_segments/actor1" in line for line in lines)
    assert "actor2: segment 1 of it was refused: column reward has numbers that are not finite in a loss" in caplog.text
