"""Gradients of several workers: their mean, their random numbers, and policies that give none.

What a policy of the user's own holds is saved with the run and loaded back, to the last bit.
"""

from __future__ import annotations

import collections
import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.errors import CheckpointError, ConfigError
from ding_like.policy import Policy
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.sharing import GradNoise, check_sharing, mean_gradient
from ding_like.utils.checkpoint import load_state, save_state
from tests.contracts.policy_cases import GRAD_CASES, make
from tests.policy.values import make_policy


def test_the_mean_is_that_of_the_vectors() -> None:
    one = {"vectors": {"0": torch.tensor([1.0, 2.0])}, "moves": {"count": 3}}
    other = {"vectors": {"0": torch.tensor([3.0, 6.0])}, "moves": {"count": 3}}

    mean = mean_gradient([one, other])

    assert mean["vectors"]["0"].tolist() == [2.0, 4.0] and mean["moves"] == {"count": 3}


def test_a_policy_in_di_engines_style_is_refused() -> None:
    policy = make(GRAD_CASES["dqn"])
    check_sharing(policy)

    type(policy)._forward_learn = lambda self, data: {}
    try:
        with pytest.raises(ConfigError, match="_forward_learn"):
            check_sharing(policy)
    finally:
        del type(policy)._forward_learn


def draws_after(noise: GradNoise) -> torch.Tensor:
    noise.begin()
    return noise.normal(5)


def test_a_state_of_another_kind_of_device_seeds_this_one() -> None:
    of_a_gpu = torch.arange(16, dtype=torch.uint8)  # the size of a CUDA generator's
    one, other = GradNoise(torch.device("cpu")), GradNoise(torch.device("cpu"))
    for noise in (one, other):
        noise.load(of_a_gpu)

    first = draws_after(one)

    assert torch.equal(draws_after(one), first), "until the update is applied"
    assert torch.equal(draws_after(other), first), "two replicas draw alike"
    one.commit()
    assert not torch.equal(draws_after(one), first)
    other.load(of_a_gpu + 1)
    assert not torch.equal(draws_after(other), first)


class OwnPolicy(Policy):
    """Policy with one attribute of each kind that training may change."""

    def _build_model(self) -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Linear(2, 2)

    def _init_learn(self) -> None:
        self._target = torch.nn.Linear(2, 2)
        self._alias = self._model
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.1)
        self._schedule = torch.optim.lr_scheduler.StepLR(self._optimizer, 2, gamma=0.5)
        self._log_alpha = torch.zeros(1, requires_grad=True)
        self._alpha_optimizer = torch.optim.SGD([self._log_alpha], lr=0.1, momentum=0.9)
        self._numpy, self._torch = np.random.default_rng(1), torch.Generator().manual_seed(1)
        self._counter, self._best, self._name = 0, -np.inf, "first"
        self._table = np.zeros((2, 3), np.float32)
        self._history: list[torch.Tensor] = []
        self._averages = {"mean": np.zeros(2), "last": torch.zeros(1)}
        self._constant = float(self._cfg.get("scale", 1.0))

    def grad(self, batch: Any) -> Any:
        raise AssertionError("train() stands in its place")

    def apply(self) -> None:
        raise AssertionError("train() stands in its place")

    def train(self) -> list[Any]:
        """Change all of it; return what two equal policies agree on."""
        drawn = [self._numpy.normal(), torch.rand(1, generator=self._torch).item()]
        x = torch.full((1, 2), drawn[0])
        loss = ((self._model(x) - self._target(x)) ** 2).sum() * self._log_alpha.exp()
        for optimizer in (self._optimizer, self._alpha_optimizer):
            optimizer.zero_grad()
        loss.sum().backward()
        for stepped in (self._optimizer, self._alpha_optimizer, self._schedule):
            stepped.step()
        with torch.no_grad():
            for parameter in self._target.parameters():
                parameter.add_(drawn[1])
        self._counter, self._best, self._name = self._counter + 1, max(self._best, drawn[0]), f"after {self._counter}"
        self._table += drawn[1]
        self._history.append(loss.detach())
        self._averages["mean"] += drawn[0]
        self._averages["last"] = loss.detach()
        return [*drawn, *self.all()]

    def all(self) -> list[Any]:
        weights = [p.tolist() for module in (self._model, self._target) for p in module.parameters()]
        return [
            *(self._counter, self._best, self._name, self._table.tolist(), [each.tolist() for each in self._history]),
            *(self._averages["mean"].tolist(), self._averages["last"].tolist(), weights),
            *(self._log_alpha.tolist(), self._optimizer.param_groups[0]["lr"]),
        ]


CFG = {"learn": {}, "collect": {}}


def through_a_file(state: Any, tmp_path: Path) -> Any:
    save_state(tmp_path / "state.pt", state)
    return load_state(tmp_path / "state.pt")


def test_a_loaded_policy_goes_on_as_the_saved_one_does(tmp_path):
    straight, resumed = OwnPolicy(CFG), OwnPolicy(CFG)
    mode, other = straight.learn_mode, resumed.learn_mode
    for _ in range(5):
        straight.train()

    other.load_state_dict(through_a_file(mode.state_dict(), tmp_path))

    assert resumed.all() == straight.all()
    for _ in range(4):
        assert resumed.train() == straight.train()


def test_what_had_not_changed_is_not_brought_to_another_config(tmp_path):
    first, second = OwnPolicy({**CFG, "scale": 2.0}), OwnPolicy({**CFG, "scale": 3.0})
    mode, other = first.learn_mode, second.learn_mode
    first.train()

    other.load_state_dict(through_a_file(mode.state_dict(), tmp_path))

    assert (second._constant, second._counter) == (3.0, 1)
    assert {"_alias", "_constant"}.isdisjoint(mode.state_dict()["own"])


def test_what_is_not_saved_is_named_once(caplog):
    class WithStream(OwnPolicy):
        def _init_learn(self):
            super()._init_learn()
            self._frames, self._critics = collections.deque([1]), [torch.nn.Linear(1, 1)]

    with caplog.at_level(logging.WARNING):
        policy = WithStream(CFG)
        for _ in range(2):
            policy.learn_mode.state_dict()
        policy._late = torch.optim.SGD(policy._target.parameters(), lr=0.1)
        assert "_late" not in policy.learn_mode.state_dict()["own"]

    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "_frames (deque), _critics (list). Give them state_dict()" in messages[0]
    assert "WithStream._late (SGD) is not saved with the run" in messages[1] and "in _init_learn" in messages[1]


def test_a_state_that_does_not_fit_is_one_error(tmp_path):
    policy = OwnPolicy(CFG)
    mode = policy.learn_mode
    policy.train()
    state = mode.state_dict()
    policy._target = torch.nn.Linear(3, 2)

    with pytest.raises(CheckpointError, match="_target of the checkpoint"):
        mode.load_state_dict(state)


def test_a_checkpoint_of_weights_alone_and_a_policy_that_only_acts_need_none_of_it():
    first, second = OwnPolicy(CFG), OwnPolicy(CFG, enable_field=["eval"])
    mode = first.learn_mode
    first.train()
    weights = {name: torch.zeros_like(each) for name, each in first.get_attribute("model").state_dict().items()}

    second.learn_mode.load_state_dict(mode.state_dict())
    assert torch.equal(first.get_attribute("model").weight, second.get_attribute("model").weight)

    mode.load_state_dict({"model": weights})
    assert first._counter == 1 and not first.get_attribute("model").weight.any()


def test_a_policy_that_defines_what_is_saved_is_taken_at_its_word():
    class Defines(OwnPolicy):
        def _state_dict_learn(self):
            return {"model": self._model.state_dict(), "counter": self._counter}

    shipped = make_policy(nstep=1)

    assert set(Defines(CFG).learn_mode.state_dict()) == {"model", "counter"}
    assert shipped.learn_mode.state_dict().keys() == shipped._state_dict_learn().keys()


def test_what_a_subclass_adds_to_a_shipped_policy_is_saved_beside_its_state(tmp_path):
    class Counting(DQNPolicy):
        def _init_learn(self):
            super()._init_learn()
            self._calls, self._own_rng = 0, np.random.default_rng(2)

    first, second = (Counting(copy.deepcopy(make_policy(nstep=1)._cfg)) for _ in range(2))
    mode, other = first.learn_mode, second.learn_mode
    first._calls, _ = 7, first._own_rng.normal()
    state = through_a_file(mode.state_dict(), tmp_path)

    other.load_state_dict(state)

    assert set(state["own"]) == {"_calls", "_own_rng"}
    assert second._calls == 7 and second._own_rng.normal() == first._own_rng.normal()
