"""A policy, an env and a hook written in DI-engine's style run from one config."""

import json

import gymnasium
import numpy as np
import pytest
import torch

from ding_like.entry import serial_pipeline
from ding_like.envs import BaseEnv, BaseEnvTimestep
from ding_like.policy import Policy
from ding_like.utils.registries import ENV_REGISTRY, POLICY_REGISTRY
from ding_like.worker import LearnerHook, register_learner_hook


@ENV_REGISTRY.register("di_engine_style_line")
class LineEnv(BaseEnv):
    """Walk on a line: action 1 is worth a point; ten steps an episode."""

    def __init__(self, cfg):
        self._cfg = cfg
        self._observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self._action_space = gymnasium.spaces.Discrete(2)
        self._reward_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)

    observation_space = property(lambda self: self._observation_space)
    action_space = property(lambda self: self._action_space)
    reward_space = property(lambda self: self._reward_space)

    def seed(self, seed, dynamic_seed=True):
        self._seed = seed

    def reset(self):
        self._t, self._return = 0, 0.0
        return np.zeros(2, np.float32)

    def step(self, action):
        self._t += 1
        reward = float(int(action) == 1)
        self._return += reward
        done = self._t == 10
        info = {"eval_episode_return": self._return} if done else {}
        return BaseEnvTimestep(np.full(2, self._t / 10, np.float32), np.array([reward], np.float32), done, info)

    def close(self):
        pass

    def __repr__(self):
        return "LineEnv"


CALLS = {"forward_collect": 0, "transitions": 0, "train_rows": 0, "hook": 0}


@POLICY_REGISTRY.register("di_engine_style_bandit")
class BanditPolicy(Policy):
    """Learn a preference per action; every method takes and returns dicts and lists, as in the seed."""

    config = dict(type="di_engine_style_bandit", collect=dict(n_sample=20, unroll_len=1), learn=dict(batch_size=16))

    def default_model(self):
        raise AssertionError("a model is given")

    def _build_model(self):
        return torch.nn.Linear(1, 2, bias=False)

    def _init_learn(self):
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.1)

    def _forward_learn(self, data):
        assert isinstance(data, list) and isinstance(data[0]["obs"], torch.Tensor)
        CALLS["train_rows"] += len(data)
        action = torch.tensor([int(row["action"]) for row in data])
        reward = torch.tensor([float(row["reward"]) for row in data])
        log_prob = torch.log_softmax(self._model(torch.ones(1, 1)), 1)[0]
        loss = -(log_prob[action] * reward).mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return {"total_loss": float(loss.detach()), "cur_lr": 0.1}

    def _forward_collect(self, data, **kwargs):
        CALLS["forward_collect"] += 1
        assert all(isinstance(obs, torch.Tensor) for obs in data.values())
        prob = torch.softmax(self._model(torch.ones(1, 1)), 1)[0].detach()
        return {i: {"action": torch.multinomial(prob, 1)[0]} for i in data}

    def _process_transition(self, obs, policy_output, timestep):
        CALLS["transitions"] += 1
        return {
            "obs": obs,
            "next_obs": timestep.obs,
            "action": policy_output["action"],
            "reward": timestep.reward,
            "done": timestep.done,
        }

    def _get_train_sample(self, transitions):
        return transitions

    def _forward_eval(self, data):
        best = self._model(torch.ones(1, 1))[0].argmax()
        return {i: {"action": best} for i in data}


class CountingHook(LearnerHook):
    def __call__(self, engine):
        CALLS["hook"] += 1
        assert "total_loss" in engine.log_buffer["scalar"]


@pytest.fixture
def configs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ding_like.entry.training.write_pictures", lambda *args, **kwargs: None)
    register_learner_hook("di_engine_style_counting", CountingHook)
    main = dict(
        exp_name="exp",
        env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=10),
        policy=dict(
            learn=dict(
                update_per_collect=2,
                learner=dict(
                    hook=dict(count=dict(type="di_engine_style_counting", position="after_iter", name="count"))
                ),
            ),
            eval=dict(evaluator=dict(eval_freq=20)),
        ),
    )
    create = dict(
        env=dict(type="di_engine_style_line"), env_manager=dict(type="base"), policy=dict(type="di_engine_style_bandit")
    )
    return main, create


def test_di_engine_style_policy_env_and_hook_train_to_the_end(configs, tmp_path):
    serial_pipeline(configs, seed=0, max_env_step=5000)

    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert result["stop"] and result["eval_value"] == 10.0
    assert CALLS["hook"] == result["train_iter"]
    assert CALLS["train_rows"] == 16 * result["train_iter"]
    assert CALLS["transitions"] == result["env_step"]
    assert CALLS["forward_collect"] == result["env_step"] // 2
