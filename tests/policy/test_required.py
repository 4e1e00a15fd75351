"""A policy of one's own that lacks a method, or whose code raises, is one message with the method and the page."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from torch import nn

from ding_like.data.rows import adapt_collect_mode, adapt_learn_mode
from ding_like.errors import ConfigError, SchemaError
from ding_like.policy import Policy, create_policy
from ding_like.policy.dqn import DQNPolicy


class Bare(Policy):
    config = dict(type="bare")

    def default_model(self) -> tuple[str, list[str]]:
        return "dqn", []


class OnlyGrad(Bare):
    def grad(self, batch: Any) -> Any:
        return {}, None


class NoRows(Bare):
    def _forward_collect(self, data: Any, **kwargs: Any) -> Any:
        return data


class NoModel(Policy):
    config = dict(type="no_model")


class Broken(DQNPolicy):
    def _init_learn(self) -> None:
        raise LookupError("no learner")


class BrokenModel(nn.Module):
    def __init__(self, **kwargs: Any) -> None:
        raise LookupError("no net")


class NoPolicy:
    config = dict(type="none")


def make(cls: type[Any], **model: Any) -> Any:
    section = cls.default_config() if issubclass(cls, Policy) else {}
    section = {**section, "type": f"{__name__}:{cls.__name__}", "model": dict(obs_shape=3, action_shape=2, **model)}
    return create_policy(section)


@pytest.mark.parametrize(
    ("cls", "mode", "lacks"),
    [
        (Bare, "learn_mode", ["grad()", "apply()"]),
        (OnlyGrad, "learn_mode", ["has no apply()"]),
        (Bare, "collect_mode", ["_init_collect() must set self._collect_actor", "_forward_collect"]),
        (Bare, "eval_mode", ["_init_eval() must set self._eval_actor"]),
        (NoRows, "collect_mode", ["_process_transition()"]),
    ],
)
def test_a_mode_of_a_policy_that_lacks_a_method_names_it_and_the_page(
    cls: type[Any], mode: str, lacks: list[str]
) -> None:
    policy = make(cls)

    with pytest.raises(ConfigError) as caught:
        getattr(policy, mode)

    assert all(part in str(caught.value) for part in [*lacks, cls.__name__, "docs/own_algorithm.md"])


@pytest.mark.parametrize(
    ("cls", "model", "said"),
    [
        (NoModel, {}, r"NoModel\) has no default_model\(\)"),
        (Broken, {}, r"\(Broken\) cannot be built: LookupError: no learner \(.*test_required.py:\d+\)"),
        (Bare, dict(type=f"{__name__}:BrokenModel"), r"model .* cannot be made: LookupError: no net \(.*:\d+\)"),
        (NoPolicy, {}, "NoPolicy, which has no learn_mode, collect_mode, eval_mode: derive it from"),
    ],
)
def test_a_policy_that_cannot_be_built_says_why_and_where(cls: type[Any], model: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(cls, **model)

    assert re.search(said, str(caught.value)), caught.value


def test_a_mode_that_a_policy_was_not_built_for_is_refused() -> None:
    section = {**DQNPolicy.default_config(), "model": dict(obs_shape=3, action_shape=2)}

    with pytest.raises(ConfigError, match="built for learn alone, not for collect"):
        _ = DQNPolicy(section, enable_field=["learn"]).collect_mode


class Learns(Bare):
    returned: Any = None

    def grad(self, batch: Any) -> Any:
        return self.returned

    def apply(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "Learns.grad() returned None; it must return two values"),
        ({"total_loss": 1.0}, "Learns.grad() returned a dict; it must return two values"),
        (([1.0], None), "Learns.grad() returned list [1.0]; it must return a dict of numbers"),
        (({"total_loss": None}, None), "Learns.grad() returned None as 'total_loss'"),
    ],
)
def test_what_grad_must_return_is_said(monkeypatch: pytest.MonkeyPatch, returned: Any, says: str) -> None:
    monkeypatch.setattr(Learns, "returned", returned)

    with pytest.raises(SchemaError, match=re.escape(says)):
        make(Learns).learn_mode.grad({})


class InDiEngineStyle(Bare):
    def _forward_learn(self, data: Any) -> Any:
        """Return nothing, by mistake."""

    def _forward_collect(self, data: Any, **kwargs: Any) -> Any:
        """Return nothing, by mistake."""

    _process_transition = _forward_collect


def test_what_methods_in_di_engine_style_must_return_is_said() -> None:
    policy = make(InDiEngineStyle)
    collect = adapt_collect_mode(policy.collect_mode)

    with pytest.raises(SchemaError, match=re.escape("InDiEngineStyle._forward_learn() returned None")):
        list(adapt_learn_mode(policy.learn_mode).minibatches([], np.random.default_rng(0)))
    with pytest.raises(SchemaError, match=re.escape("InDiEngineStyle._forward_collect() returned None")):
        collect.actor.act(
            np.zeros((1, 3)), lanes=np.array([0]), is_first=np.array([False]), rng=np.random.default_rng(0)
        )


class UnnamedModel(Bare):
    def default_model(self) -> Any:
        return "dqn"


def test_what_default_model_must_return_is_said() -> None:
    with pytest.raises(ConfigError, match=re.escape("UnnamedModel.default_model() returned 'dqn'; it must return")):
        make(UnnamedModel)


def test_a_method_that_takes_fewer_arguments_than_the_one_it_overrides_is_named() -> None:
    class Short(DQNPolicy):
        def _next_value(self, next_obs):  # no mask
            return next_obs

    with pytest.raises(ConfigError, match=r"Short\._next_value \(.*:\d+\) takes fewer .*_next_value\(next_obs, mask\)"):
        Short(Short.default_config())
