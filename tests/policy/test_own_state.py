"""What a policy of the user's own holds is saved with the run and loaded back, to the last bit."""

from __future__ import annotations

import collections
import copy
import itertools
import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.errors import CheckpointError
from ding_like.policy import Policy
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.checkpoint import load_state, save_state
from tests.policy.test_dqn import make_policy


class Averages:
    """Keep what a user's own class may: it has no state_dict."""

    def __init__(self) -> None:
        self.mean, self.count, self.last = np.zeros(2), 0, {"loss": torch.zeros(1)}


class OwnPolicy(Policy):
    """Hold one of everything that training may change."""

    def _build_model(self) -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Linear(2, 2)

    def _init_learn(self) -> None:
        self._target = torch.nn.Linear(2, 2)
        self._alias = self._model
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.1)
        self._schedule = torch.optim.lr_scheduler.StepLR(self._optimizer, 2, gamma=0.5)
        self._many = {"critics": [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)], "count": 0}
        self._log_alpha = torch.zeros(1, requires_grad=True)
        self._alpha_optimizer = torch.optim.SGD([self._log_alpha], lr=0.1, momentum=0.9)
        self._numpy, self._torch = np.random.default_rng(1), torch.Generator().manual_seed(1)
        self._old, self._python = np.random.RandomState(1), random.Random(1)
        self._counter, self._best, self._name = 0, -np.inf, "first"
        self._table = np.zeros((2, 3), np.float32)
        self._losses: collections.deque[float] = collections.deque(maxlen=3)
        self._seen: set[int] = set()
        self._history: list[torch.Tensor] = []
        self._averages = Averages()
        self._constant = float(self._cfg.get("scale", 1.0))

    def grad(self, batch: Any) -> Any:
        raise AssertionError("train() stands in its place")

    def apply(self) -> None:
        raise AssertionError("train() stands in its place")

    def train(self) -> list[float]:
        """Change all of it; return what was drawn."""
        drawn = [self._numpy.normal(), torch.rand(1, generator=self._torch).item(), self._old.rand()]
        drawn += [self._python.random()]
        x = torch.full((1, 2), drawn[0])
        loss = ((self._model(x) - self._target(x)) ** 2).sum() * self._log_alpha.exp()
        for optimizer in (self._optimizer, self._alpha_optimizer):
            optimizer.zero_grad()
        loss.sum().backward()
        self._optimizer.step()
        self._alpha_optimizer.step()
        self._schedule.step()
        with torch.no_grad():
            for module in (self._target, *self._many["critics"]):
                for parameter in module.parameters():
                    parameter.add_(drawn[1])
        self._counter, self._best, self._name = self._counter + 1, max(self._best, drawn[0]), f"after {self._counter}"
        self._many["count"] += 1
        self._table += drawn[2]
        self._losses.append(float(loss.detach()))
        self._seen.add(self._counter)
        self._history.append(loss.detach())
        self._averages.mean += drawn[0]
        self._averages.count += 1
        self._averages.last["loss"] = loss.detach()
        return [*drawn, float(loss.detach()), *self._losses, self._counter, self._best, float(self._table.sum())]

    def all(self) -> list[Any]:
        """Return what two equal policies agree on."""
        return [
            self._counter, self._best, self._name, list(self._losses), self._losses.maxlen, self._seen,
            [each.tolist() for each in self._history], self._many["count"], self._averages.mean.tolist(),
            self._averages.count, self._averages.last["loss"].tolist(), self._optimizer.param_groups[0]["lr"],
            [p.tolist() for m in (self._model, self._target, *self._many["critics"]) for p in m.parameters()],
        ]  # fmt: skip


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
    assert resumed.all() == straight.all()


def test_loading_goes_back_also_to_what_had_not_changed(tmp_path):
    policy = OwnPolicy(CFG)
    mode = policy.learn_mode
    state = through_a_file(mode.state_dict(), tmp_path)
    before = copy.deepcopy(policy.all())
    policy.train()

    mode.load_state_dict(state)

    assert policy.all() == before


def test_what_had_not_changed_is_not_brought_to_another_config(tmp_path):
    first, second = OwnPolicy({**CFG, "scale": 2.0}), OwnPolicy({**CFG, "scale": 3.0})
    mode, other = first.learn_mode, second.learn_mode
    first.train()

    other.load_state_dict(through_a_file(mode.state_dict(), tmp_path))

    assert (second._constant, second._counter) == (3.0, 1)


def test_views_of_the_model_are_saved_once():
    policy = OwnPolicy(CFG)
    policy._view, policy._part = policy.get_attribute("model").weight[0], policy.get_attribute("model")
    mode = policy.learn_mode
    policy.train()

    assert {"_view", "_part", "_alias"}.isdisjoint(mode.state_dict()["own"])


def test_what_cannot_be_saved_is_named_once(caplog):
    class WithStream(OwnPolicy):
        def _init_learn(self):
            super()._init_learn()
            self._frames = itertools.count()
            self._nested = {"inner": [iter(())]}

    with caplog.at_level(logging.WARNING):
        policy = WithStream(CFG)
        for _ in range(2):
            policy.learn_mode.state_dict()

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("WithStream._frames (a count) is not saved with the run: a resume begins it anew.")
    assert "_state_dict_learn" in said[0] and "WithStream._nested['inner'][0] (a tuple_iterator)" in said[1]


def test_a_state_that_does_not_fit_is_one_error(tmp_path):
    policy = OwnPolicy(CFG)
    mode = policy.learn_mode
    policy.train()
    state = mode.state_dict()
    policy._target = torch.nn.Linear(3, 2)

    with pytest.raises(CheckpointError, match="_target of the checkpoint"):
        mode.load_state_dict(state)


def test_a_checkpoint_without_the_policys_own_loads_the_model():
    policy = OwnPolicy(CFG)
    mode = policy.learn_mode
    policy.train()

    mode.load_state_dict(
        {"model": {name: torch.zeros_like(each) for name, each in policy.get_attribute("model").state_dict().items()}}
    )

    assert policy._counter == 1 and float(policy.get_attribute("model").weight.detach().abs().sum()) == 0


def test_a_policy_that_only_acts_needs_none_of_it():
    first, second = OwnPolicy(CFG), OwnPolicy(CFG, enable_field=["eval"])
    mode = first.learn_mode
    first.train()

    second.learn_mode.load_state_dict(mode.state_dict())

    assert torch.equal(first.get_attribute("model").weight, second.get_attribute("model").weight)


def test_a_shipped_policy_is_saved_as_it_was():
    policy = make_policy(nstep=1)

    assert policy.learn_mode.state_dict().keys() == policy._state_dict_learn().keys()


def test_a_policy_that_says_what_is_saved_is_taken_at_its_word():
    class Says(OwnPolicy):
        def _state_dict_learn(self):
            return {"model": self._model.state_dict(), "counter": self._counter}

    assert set(Says(CFG).learn_mode.state_dict()) == {"model", "counter"}


def test_what_a_subclass_adds_to_a_shipped_policy_is_saved_beside_its_state(tmp_path):
    class Counting(DQNPolicy):
        def _init_learn(self):
            super()._init_learn()
            self._calls, self._own_rng = 0, np.random.default_rng(2)

    def made() -> Counting:
        shipped = make_policy(nstep=1)
        return Counting(shipped._cfg)

    first, second = made(), made()
    mode, other = first.learn_mode, second.learn_mode
    first._calls, _ = 7, first._own_rng.normal()
    state = through_a_file(mode.state_dict(), tmp_path)

    other.load_state_dict(state)

    assert set(state["own"]) == {"_calls", "_own_rng"}
    assert second._calls == 7 and second._own_rng.normal() == first._own_rng.normal()


def test_a_tensor_that_has_grown_is_taken_over_and_stays_trainable(tmp_path):
    first, second = OwnPolicy(CFG), OwnPolicy(CFG)
    mode, other = first.learn_mode, second.learn_mode
    first._log_alpha = torch.zeros(3, requires_grad=True)

    other.load_state_dict(through_a_file(mode.state_dict(), tmp_path))

    assert second._log_alpha.shape == (3,) and second._log_alpha.requires_grad


def test_an_object_that_is_made_late_is_named_when_it_is_to_be_saved(caplog):
    policy = OwnPolicy(CFG)
    mode = policy.learn_mode
    policy._late = torch.optim.SGD(policy._target.parameters(), lr=0.1)

    with caplog.at_level(logging.WARNING):
        state = mode.state_dict()

    assert "_late" not in state["own"]
    assert "OwnPolicy._late (an object that was made after the policy: make it in _init_learn)" in caplog.text
