"""A trainer takes any object with a network and a training step: the example of docs/seed_agent.md, in plain torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.config import compile_config, deep_merge, read_config
from ding_like.entry.seed_entry import Trainer
from ding_like.errors import ConfigError
from ding_like.pipeline.seed import Config
from ding_like.policy import create_policy

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


def example() -> dict[str, Any]:
    """Return what the example of the page defines, without its last lines, which train."""
    text = (ROOT / "docs/seed_agent.md").read_text()
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", text, re.S) if "class PlainAgent" in each)
    found: dict[str, Any] = {}
    exec(code.partition('if __name__ == "__main__":')[0], found)
    return found


def test_the_example_of_the_page_trains_its_own_network_in_place() -> None:
    agent = example()["PlainAgent"](4, 2)
    before = [each.detach().clone() for each in agent.model_instance.parameters()]
    config = Config(actor_processes=1, actor_threads=1, minimum_buffer_size=50, broadcast_period=0.1)
    config.inference_batchsize, config.inference_delay = 0, 0.0

    found = Trainer(agent, config, "CartPole-v1", exp_name="exp").start(3.0)

    assert found.updates > 5 and np.isfinite(found.eval_value)
    changed = zip(before, agent.model_instance.parameters(), strict=True)
    assert all((one != other).any() for one, other in changed)
    lines = [json.loads(line) for line in Path("exp/metrics.jsonl").read_text().splitlines()]
    assert any(line["source"] == "agent" and np.isfinite(line["loss"]) for line in lines), "its logging client wrote"


def test_a_policy_is_trained_in_place() -> None:
    file = read_config(ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py")
    cfg = compile_config(file.main_config, file.create_config, save=False)
    policy = create_policy(deep_merge(cfg.policy, {"model": {"obs_shape": 4, "action_shape": 2}}))
    before = [each.detach().clone() for each in policy.get_attribute("model").parameters()]
    config = Config(actor_threads=1, minimum_buffer_size=50, inference_batchsize=0, inference_delay=0.0)

    Trainer(policy, config, "CartPole-v1", exp_name="exp").start(2.0)

    after = policy.get_attribute("model").parameters()
    assert any((one != other).any() for one, other in zip(before, after, strict=True))


def test_a_config_may_be_changed_and_is_checked_again() -> None:
    config = Config().replace(n_step=2)
    assert (config.n_step, Config().n_step) == (2, 3)
    config.epsilon = 2.0

    with pytest.raises(ConfigError, match="epsilon is 2.0"):
        Trainer("dqn", config, "CartPole-v1")


def test_what_is_no_agent_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="an object with model_instance and train_step"):
        Trainer(object(), Config(), "CartPole-v1")  # type: ignore[arg-type]
