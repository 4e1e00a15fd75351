"""An algorithm on the frame of TD updates is three new files, model, policy and config, and edits none: here is one."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.entry.cli import main
from ding_like.utils.registries import MODEL_REGISTRY, POLICY_REGISTRY
from tests.entry.new_files import LAKE, new_package

MODEL = '''
"""A table of action values."""

import torch
from torch import nn

from ding_like.utils.registries import MODEL_REGISTRY


@MODEL_REGISTRY.register("value_table")
class ValueTable(nn.Module):
    def __init__(self, obs_shape, action_shape):
        super().__init__()
        self.values = nn.Parameter(torch.zeros(obs_shape["one_hot"][0], action_shape))

    def q(self, state):
        return self.values[state]
'''

POLICY = '''
"""Munchausen DQN (Vieillard et al. 2020): rewards grow by how much the policy, softmax(Q / tau), likes the action.

    y = r + alpha * clip(tau * log pi(a | s), low, 0) + gamma * sum_a' pi(a' | s') * (Q(s', a') - tau * log pi(a' | s'))
"""

import torch

from ding_like.policy.value_based import ValueBasedPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("munchausen_dqn")
class MunchausenDQN(ValueBasedPolicy):
    config = dict(type="munchausen_dqn", tau=0.01, alpha=0.5, low=-0.2)

    def default_model(self):
        return "value_table", ["my_value_algorithm.model"]

    def _log_pi(self, q):
        return torch.log_softmax(q / self._cfg.tau, dim=1)

    def _next_value(self, next_obs, mask):
        q = self._target.tensor(next_obs)
        log_pi = self._log_pi(q)
        return (log_pi.exp() * (q - self._cfg.tau * log_pi)).sum(dim=1)

    def _td_target(self, rows):
        log_pi = self._family.of_action(self._log_pi(self._target.tensor(rows["obs"])), rows["action"])
        bonus = (self._cfg.tau * log_pi).clamp(self._cfg.low, 0.0)
        return super()._td_target(rows) + self._cfg.alpha * bonus
'''

CONFIG = f"""
{LAKE}
main_config = dict(
    exp_name="lake",
    env=env,
    policy=dict(
        discount_factor=0.9,
        random_collect_size=400,
        learn=dict(learning_rate=0.05, batch_size=32, target_update_freq=20),
        eval=dict(evaluator=dict(eval_freq=100)),
    ),
)
create_config = dict(
    env=dict(type="gymnasium"),
    env_manager=dict(type="base"),
    policy=dict(type="munchausen_dqn", import_names=["my_value_algorithm.policy"]),
)
"""


@pytest.fixture
def package(tmp_path, monkeypatch) -> Iterator[Path]:
    """Return a folder with the three files in it, which python finds."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])  # policies are made here without a config file
    with new_package("my_value_algorithm", tmp_path, monkeypatch, model=MODEL, policy=POLICY, config=CONFIG) as folder:
        yield folder


def test_three_new_files_train_and_are_listed(package, tmp_path, capsys):
    assert "munchausen_dqn" not in POLICY_REGISTRY and "value_table" not in MODEL_REGISTRY

    main(["-m", "serial", "-c", str(package / "config.py"), "--env-step", "4000", "policy.alpha=0.4"])
    capsys.readouterr()
    main(["-q", "policy"])

    result = json.loads((tmp_path / "lake/result.json").read_text())
    assert result["eval_value"] == 1.0, "the way over the ice was found"
    assert result["train_iter"] >= 100
    listed = next(line for line in capsys.readouterr().out.splitlines() if "munchausen_dqn" in line)
    assert "MunchausenDQN" in listed


def test_it_fits_on_a_screen():
    lines = [line for line in POLICY.split('"""')[2].splitlines() if line.strip()]

    assert len(lines) <= 20, "the frame asks more of an algorithm than what the paper says"
