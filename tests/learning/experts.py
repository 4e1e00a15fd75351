"""Experts of the shipped configs that learn from one: `python -m tests.learning.experts NAME` makes one here.

- `cartpole`: `cartpole_expert.safetensors`, 10 episodes of a controller written by hand, all of 500 steps
- `cartpole_run`: `cartpole_expert`, the run of PPO with the shipped config
- `pendulum`: `pendulum_expert.safetensors`, 20 episodes of what SAC has learned with the shipped config
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import ding_like
from ding_like.data.demonstrations import Demonstrations
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from tests.experts import balance, demonstrate

CONTROL = Path(__file__).parents[2] / "dizoo/classic_control"
SAC = CONTROL / "pendulum/config/pendulum_sac_config.py"
PPO = CONTROL / "cartpole/config/cartpole_ppo_config.py"


def _write(found: Demonstrations, file: str) -> None:
    found.save(file)
    sys.stdout.write(f"{file}: {found.num_episodes} episodes, mean return {found.returns.mean():.1f}\n")


def _write_cartpole() -> None:
    _write(demonstrate(balance, "CartPole-v1", episodes=10), "cartpole_expert.safetensors")


def _train_cartpole() -> None:
    serial_pipeline_onpolicy(str(PPO), seed=0, exp_name="cartpole_expert", max_env_step=40_000)


def _write_pendulum() -> None:
    settings = dict(exp_name="pendulum_expert", max_env_step=10_000, overrides=["env.stop_value=0"])
    serial_pipeline(str(SAC), seed=0, **settings)
    agent = ding_like.load("pendulum_expert")
    _write(demonstrate(agent.act, "Pendulum-v1", episodes=20), "pendulum_expert.safetensors")
    returns = demonstrate(agent.act, "Pendulum-v1", episodes=100, first_seed=10_000).returns
    sys.stdout.write(f"the expert returns {returns.mean():.1f} in 100 other episodes\n")


EXPERTS: dict[str, Callable[[], None]] = {
    "cartpole": _write_cartpole,
    "cartpole_run": _train_cartpole,
    "pendulum": _write_pendulum,
}


def make_expert(name: str) -> None:
    """Make an expert in the present folder."""
    with patch("ding_like.entry.training.write_pictures"):
        EXPERTS[name]()


def main() -> None:
    """Parse the command line and make the expert."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(EXPERTS))
    make_expert(parser.parse_args().name)


if __name__ == "__main__":
    main()
