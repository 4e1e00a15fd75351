"""A new algorithm is three new files, model, policy and config, and edits none: here is one, written and trained."""

import json
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


@MODEL_REGISTRY.register("q_table")
class QTable(nn.Module):
    def __init__(self, obs_shape, action_shape):
        super().__init__()
        (num_states,) = obs_shape["one_hot"]
        self.values = nn.Parameter(torch.zeros(num_states, action_shape))

    def forward(self, state):
        return self.values[state]
'''

POLICY = '''
"""Soft Q-learning on a table (Haarnoja et al. 2017): the value of a state is alpha log sum exp(Q / alpha)."""

import numpy as np
import torch

from ding_like.model.flat_params import FlatParams
from ding_like.policy import Policy
from ding_like.model.optimizer import FlatOptimizer
from ding_like.utils.registries import POLICY_REGISTRY


class SoftActor:
    def __init__(self, model, alpha):
        self._model, self._alpha = model, alpha

    def act(self, obs, *, lanes, is_first, rng, **setting):
        q = self._model(torch.from_numpy(obs)).detach().numpy()
        noise = rng.gumbel(size=q.shape) if self._alpha else 0.0
        return {"action": (q + self._alpha * noise).argmax(axis=1)}

    def reset(self, lanes=None):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@POLICY_REGISTRY.register("soft_q_table")
class SoftQTablePolicy(Policy):
    config = dict(
        type="soft_q_table",
        alpha=0.02,
        learn=dict(learning_rate=0.05, batch_size=32, update_per_collect=4),
        collect=dict(n_sample=8),
    )

    def default_model(self):
        return "q_table", ["my_algorithm.model"]

    def _init_learn(self):
        self._params = FlatParams(self._model)
        self._optimizer = FlatOptimizer.from_config(self._params, self._cfg.learn)

    def _init_collect(self):
        self._collect_actor = SoftActor(self._model, self._cfg.alpha)

    def _init_eval(self):
        self._eval_actor = SoftActor(self._model, 0.0)

    def grad(self, batch):
        rows, alpha = batch.to(self._device), self._cfg.alpha
        with torch.no_grad():
            value = alpha * torch.logsumexp(self._model(rows["next_obs"]) / alpha, dim=1)
        target = rows["reward"] + self._gamma * value * ~rows["terminated"]
        q = self._model(rows["obs"]).gather(1, rows["action"].unsqueeze(1)).squeeze(1)
        self._loss = (q - target).square().mean()
        self._params.zero_grad()
        self._loss.backward()
        return {"total_loss": self._loss.detach(), "q_value": q.detach()}, None

    def apply(self):
        self._optimizer.step(self._loss.detach())

    def _optimizers(self):
        return (self._optimizer,)

    def _monitor_vars_learn(self):
        return ["total_loss", "q_value"]
'''

CONFIG = f"""
{LAKE}
main_config = dict(
    exp_name="lake",
    env=env,
    policy=dict(discount_factor=0.9, random_collect_size=400, eval=dict(evaluator=dict(eval_freq=100))),
)
create_config = dict(
    env=dict(type="gymnasium"),
    env_manager=dict(type="base"),
    policy=dict(type="soft_q_table", import_names=["my_algorithm.policy"]),
)
"""


@pytest.fixture
def package(tmp_path, monkeypatch) -> Iterator[Path]:
    """Return a folder with the three files in it, which python finds."""
    with new_package("my_algorithm", tmp_path, monkeypatch, model=MODEL, policy=POLICY, config=CONFIG) as folder:
        yield folder


def test_three_new_files_train_and_evaluate_from_the_command_line(package, tmp_path, capsys):
    assert "soft_q_table" not in POLICY_REGISTRY and "q_table" not in MODEL_REGISTRY
    config = str(package / "config.py")

    main(["-m", "serial", "-c", config, "--env-step", "4000", "policy.alpha=0.01"])

    result = json.loads((tmp_path / "lake/result.json").read_text())
    assert result["stop"] and result["eval_value"] == 1.0, "the way over the ice was found"
    assert result["train_iter"] >= 100
    assert "policy.alpha" in (tmp_path / "lake/config_diff.txt").read_text(), "its own settings can be overridden"

    main(["-m", "eval", "-c", config, "--load-path", "lake/ckpt/ckpt_best.pth.tar"])

    assert "mean return 1" in capsys.readouterr().out


def test_a_typo_in_the_new_policys_own_setting_is_told(package, capsys):
    with pytest.raises(SystemExit):
        main(["-m", "serial", "-c", str(package / "config.py"), "policy.alhpa=0.01"])

    assert "did you mean 'alpha'" in capsys.readouterr().err.lower()
