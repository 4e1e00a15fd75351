"""Networks with DI-engine's layers and names, written out here, give the same values after they have come over."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch import Tensor, nn

from ding_like.entry import eval as eval_checkpoint
from ding_like.errors import CheckpointError
from ding_like.model import DQN, VAC
from ding_like.model.qac import ContinuousQAC
from ding_like.policy import DQNPolicy
from ding_like.utils.checkpoint import from_di_engine, load_state, renamed
from ding_like.worker import BaseLearner


def block(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers)


class TheirEncoder(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.init = nn.Linear(size, 8)
        self.main = block(8, 8, 6)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.main(torch.relu(self.init(x)))
        return features


class TheirDueling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.A = nn.Sequential(block(6, 6), nn.Sequential(nn.Linear(6, 3)))
        self.V = nn.Sequential(block(6, 6), nn.Sequential(nn.Linear(6, 1)))

    def forward(self, x: Tensor) -> Tensor:
        advantage, value = self.A(x), self.V(x)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


class TheirDiscrete(nn.Module):
    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.Q = nn.Sequential(block(6, *[6] * layers), nn.Sequential(nn.Linear(6, 3)))

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.Q(x)
        return values


class TheirDQN(nn.Module):
    def __init__(self, *, dueling: bool) -> None:
        super().__init__()
        self.encoder = TheirEncoder(4)
        self.head = TheirDueling() if dueling else TheirDiscrete()

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.head(self.encoder(x))
        return values


class TheirRegression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main, self.last = block(6, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.last(self.main(x)).squeeze(1)
        return value


class TheirGaussian(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log_sigma_param = nn.Parameter(torch.randn(1, 2))
        self.main, self.mu = block(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        mu = self.mu(self.main(x))
        return torch.cat([mu, self.log_sigma_param.expand_as(mu)], dim=1)


class TheirVAC(nn.Module):
    def __init__(self, *, continuous: bool = False, share: bool = True, layers: int = 1) -> None:
        super().__init__()
        if share:
            self.encoder = TheirEncoder(4)
            encoders = [self.encoder, self.encoder]
        else:
            self.actor_encoder, self.critic_encoder = encoders = [TheirEncoder(4), TheirEncoder(4)]
        self.critic_head = TheirRegression()
        self.actor_head = TheirGaussian() if continuous else TheirDiscrete(layers)
        self.actor = nn.ModuleList([encoders[0], self.actor_head])
        self.critic = nn.ModuleList([encoders[1], self.critic_head])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor[1](self.actor[0](x)), self.critic[1](self.critic[0](x))


HEADS: dict[str, Any] = dict(encoder_hidden_size_list=[8, 8, 6], actor_head_hidden_size=6, critic_head_hidden_size=6)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dueling", [True, False])
def test_a_dqn_that_came_over_gives_the_same_values(dueling: bool) -> None:
    theirs, ours = TheirDQN(dueling=dueling), DQN(4, 3, [8, 8, 6], dueling=dueling)
    obs = torch.randn(16, 4)

    ours.load_state_dict(renamed(theirs.state_dict(), ours.state_dict()))

    torch.testing.assert_close(ours.q(obs), theirs(obs))


@pytest.mark.parametrize("kind", ["discrete", "two_layers", "not_shared", "continuous"])
def test_a_vac_that_came_over_acts_and_judges_the_same(kind: str) -> None:
    layers = 2 if kind == "two_layers" else 1
    theirs = TheirVAC(continuous=kind == "continuous", share=kind != "not_shared", layers=layers)
    space: dict[str, Any] = {"action_space": "continuous"} if kind == "continuous" else {}
    actions = 2 if kind == "continuous" else 3
    ours = VAC(4, actions, share_encoder=kind != "not_shared", actor_head_layer_num=layers, **space, **HEADS)
    obs = torch.randn(16, 4)

    ours.load_state_dict(renamed(theirs.state_dict(), ours.state_dict()))

    logit, value = ours.actor_critic(obs)
    wanted_logit, wanted_value = theirs(obs)
    torch.testing.assert_close(logit, wanted_logit)
    torch.testing.assert_close(value, wanted_value)


def test_a_sigma_that_is_fixed_stays_as_the_config_says() -> None:
    theirs = TheirVAC(continuous=True).state_dict()
    theirs = {name: value for name, value in theirs.items() if "log_sigma" not in name}
    ours = VAC(4, 2, action_space="continuous", sigma_type="fixed", fixed_sigma_value=0.25, **HEADS)

    ours.load_state_dict(renamed(theirs, ours.state_dict()))

    assert ours.actor_head.log_sigma.exp().tolist() == [0.25, 0.25]


def their_checkpoint(path: Path, model: nn.Module, target: nn.Module | None = None) -> Path:
    """Write a checkpoint as DI-engine's learner does."""
    optimizer = torch.optim.Adam(model.parameters())
    targets = {} if target is None else {"target_model": target.state_dict()}
    state = {"model": model.state_dict(), **targets, "optimizer": optimizer.state_dict()}
    torch.save({**state, "last_iter": 7, "last_step": 900}, path)
    return path


def policy_cfg(**model: Any) -> EasyDict:
    cfg = DQNPolicy.default_config()
    cfg.model = EasyDict(obs_shape=4, action_shape=3, encoder_hidden_size_list=[8, 8, 6], **model)
    return cfg


def test_a_learner_goes_on_from_a_checkpoint_of_di_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    theirs, target = TheirDQN(dueling=True), TheirDQN(dueling=True)
    path = their_checkpoint(tmp_path / "iteration_7.pth.tar", theirs, target)
    policy = DQNPolicy(policy_cfg())
    obs = torch.randn(16, 4)

    learner = BaseLearner({"hook": {"load_ckpt_before_run": str(path)}}, policy.learn_mode)
    learner.call_hook("before_run")
    learner.close()

    torch.testing.assert_close(policy.get_attribute("model").q(obs), theirs(obs))
    torch.testing.assert_close(policy._target_model.q(obs), target(obs))
    assert (learner.train_iter, learner.collector_envstep) == (7, 900)


def test_a_checkpoint_of_another_network_names_what_is_missing_and_what_is_unexpected(tmp_path: Path) -> None:
    path = their_checkpoint(tmp_path / "best.pth.tar", TheirDQN(dueling=False))
    mode = DQNPolicy(policy_cfg(), enable_field=["eval"]).eval_mode

    with pytest.raises(CheckpointError, match=r"missing head\.value\.main\.0\..*unexpected head\.Q\.0\.0\."):
        mode.load_state_dict(from_di_engine(load_state(path), mode.state_dict))


def test_a_network_on_pictures_is_refused_with_the_reason() -> None:
    theirs = {"encoder.main.0.weight": torch.zeros(2, 1, 8, 8), "encoder.mid.weight": torch.zeros(2, 2)}

    with pytest.raises(CheckpointError, match="no activation"):
        from_di_engine({"model": theirs}, lambda: {"model": theirs})


def test_a_checkpoint_of_our_own_is_left_as_it_is() -> None:
    state = {"model": DQN(4, 3).state_dict(), "optimizer": {}, "last_iter": 3}

    assert from_di_engine(state, dict) is state


def test_a_continuous_actor_critic_of_our_own_is_left_as_it_is() -> None:
    for space, twin in (("reparameterization", True), ("regression", False)):
        model = ContinuousQAC(4, 2, action_space=space, twin_critic=twin)
        state = {"model": model.state_dict(), "networks": {}, "last_iter": 3}

        assert from_di_engine(state, dict) is state


class RewardIsAction(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.zeros(4, np.float32), float(action), self.time == 5, False, {}


def test_eval_takes_a_checkpoint_of_di_engine(tmp_path: Path) -> None:
    theirs = TheirDQN(dueling=True)
    with torch.no_grad():
        theirs.head.A[1][0].bias.copy_(torch.tensor([0.0, 0.0, 50.0]))  # always the third action
    path = their_checkpoint(tmp_path / "ckpt_best.pth.tar", theirs)
    main = dict(
        env=dict(n_evaluator_episode=1, evaluator_env_num=1),
        policy=dict(model=dict(encoder_hidden_size_list=[8, 8, 6])),
    )
    create = dict(env=dict(type=f"{__name__}:RewardIsAction"), policy=dict(type="dqn"))

    assert eval_checkpoint((main, create), load_path=str(path)) == 10
