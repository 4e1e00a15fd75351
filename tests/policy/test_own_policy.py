"""A policy of one's own that lacks a method, or whose code raises, is one message with the method and the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ding_like.data.rows import adapt_collect_mode, adapt_learn_mode
from ding_like.errors import ConfigError, SchemaError
from ding_like.model.q_networks import FQF
from ding_like.policy import Policy, create_policy, get_policy_cls
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.model_methods import arguments_of, model_faults, probe_model
from tests.contracts.policy_cases import CASES, Case, make


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


class UnnamedModel(Bare):
    def default_model(self) -> Any:
        return "dqn"


class Broken(DQNPolicy):
    def _init_learn(self) -> None:
        raise LookupError("no learner")


class BrokenModel(nn.Module):
    def __init__(self, **kwargs: Any) -> None:
        raise LookupError("no net")


class NoPolicy:
    config = dict(type="none")


def build(cls: type[Any], **model: Any) -> Any:
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
    policy = build(cls)

    with pytest.raises(ConfigError) as caught:
        getattr(policy, mode)

    assert all(part in str(caught.value) for part in [*lacks, cls.__name__, "docs/own_algorithm.md"])


@pytest.mark.parametrize(
    ("cls", "model", "said"),
    [
        (NoModel, {}, r"NoModel\) has no default_model\(\)"),
        (UnnamedModel, {}, r"UnnamedModel\.default_model\(\) returned 'dqn'; it must return"),
        (Broken, {}, r"\(Broken\) cannot be built: LookupError: no learner \(.*test_own_policy.py:\d+\)"),
        (Bare, dict(type=f"{__name__}:BrokenModel"), r"model .* cannot be made: LookupError: no net \(.*:\d+\)"),
        (NoPolicy, {}, "NoPolicy, which has no learn_mode, collect_mode, eval_mode: derive it from"),
    ],
)
def test_a_policy_that_cannot_be_built_says_why_and_where(cls: type[Any], model: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(cls, **model)

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
        build(Learns).learn_mode.grad({})


class InDiEngineStyle(Bare):
    def _forward_learn(self, data: Any) -> Any:
        """Return nothing, by mistake."""

    def _forward_collect(self, data: Any, **kwargs: Any) -> Any:
        """Return nothing, by mistake."""

    _process_transition = _forward_collect


def test_what_methods_in_di_engine_style_must_return_is_said() -> None:
    policy = build(InDiEngineStyle)
    collect = adapt_collect_mode(policy.collect_mode)

    with pytest.raises(SchemaError, match=re.escape("InDiEngineStyle._forward_learn() returned None")):
        list(adapt_learn_mode(policy.learn_mode).minibatches([], np.random.default_rng(0)))
    with pytest.raises(SchemaError, match=re.escape("InDiEngineStyle._forward_collect() returned None")):
        collect.actor.act(
            np.zeros((1, 3)), lanes=np.array([0]), is_first=np.array([False]), rng=np.random.default_rng(0)
        )


def test_a_method_that_takes_fewer_arguments_than_the_one_it_overrides_is_named() -> None:
    class Short(DQNPolicy):
        def _next_value(self, next_obs):  # no mask
            return next_obs

    with pytest.raises(ConfigError, match=r"Short\._next_value \(.*:\d+\) takes fewer .*_next_value\(next_obs, mask\)"):
        Short(Short.default_config())


class Net(nn.Module):
    """A Q network that gives `columns` more values than there are actions."""

    def __init__(self, obs_shape: int = 3, action_shape: int = 4, *, columns: int = 0, axis: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(obs_shape, action_shape + columns)
        self._axis = axis

    def q(self, obs: Tensor) -> Tensor:
        values: Tensor = self.linear(obs)
        return values.unsqueeze(0) if self._axis else values


def dqn(model: Any, **section: Any) -> Any:
    own = get_policy_cls(dict(type="dqn")).default_config()
    own.model = dict(obs_shape=3, action_shape=4, **section)
    return create_policy(own, model=model)


def one_of_each_policy() -> Iterator[tuple[Case, Any]]:
    for case in {case.policy: case for case in reversed(CASES.values())}.values():
        yield case, make(case)


def test_the_models_of_the_package_are_what_their_policies_declare() -> None:
    wrong = {}
    for case, policy in one_of_each_policy():
        shape, sizes = policy._model_obs_shape(), policy._model_sizes()
        try:
            probe_model(
                policy.get_attribute("model"), policy.model_methods, policy=type(policy), obs_shape=shape, sizes=sizes
            )
        except ConfigError as error:
            wrong[case.policy] = str(error)

    assert wrong == {}


def test_every_policy_says_at_once_what_a_bare_model_lacks() -> None:
    unsaid = []
    for case, policy in one_of_each_policy():
        if not policy.model_methods:  # called by torch's own name, forward
            continue
        with pytest.raises(ConfigError) as caught:
            create_policy(policy.cfg, model=nn.Linear(3, 4))
        expected = [*(str(method) for method in policy.model_methods), "docs/own_model.md"]
        unsaid += [(case.policy, part) for part in expected if part not in str(caught.value)]

    assert unsaid == []


@pytest.mark.parametrize(
    ("make_model", "said"),
    [
        (
            lambda: Net(columns=1),
            r"Net.q\(obs\) gave \[\d, 5\] for obs of shape \[\d, 3\]; DQNPolicy expects q\(obs\) -> \[B, A\], ",
        ),
        (lambda: Net(axis=True), r"gave \[1, \d, 4\].*here \[\d, 4\]"),
        (lambda: Net(obs_shape=2), r"Net.q\(obs\) raised for obs of shape .*RuntimeError: .*test_own_policy.py:\d+"),
        (lambda: Net, r"expected a torch.nn.Module; give an instance of it: Net\(...\)"),
    ],
    ids=["width", "axes", "raises", "class"],
)
def test_a_model_that_does_not_fit_is_told_what_was_seen_and_expected(make_model: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        dqn(make_model())


def test_a_model_that_is_on_another_device_is_tried_there() -> None:
    def on_meta(**settings: Any) -> Net:
        model = Net(**settings).to("meta")
        assert {each.device.type for each in model.parameters()} == {"meta"}
        return model

    policy = get_policy_cls(dict(type="dqn"))
    probe_model(on_meta(), policy.model_methods, policy=policy, obs_shape=3, sizes={"A": 4})

    with pytest.raises(ConfigError, match=r"Net.q\(obs\) gave"):
        probe_model(on_meta(columns=1), policy.model_methods, policy=policy, obs_shape=3, sizes={"A": 4})


def test_a_probe_leaves_random_numbers_and_modes_as_they_were() -> None:
    class Dropped(Net):
        def q(self, obs: Tensor) -> Tensor:
            return nn.functional.dropout(super().q(obs), training=self.training) + torch.rand(1)

    model = Dropped()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)

    dqn(model)

    assert torch.equal(torch.rand(2), expected)
    assert model.training


def test_a_model_with_the_methods_is_taken_also_by_its_import_path() -> None:
    assert dqn(Net()).learn_mode is not None
    assert type(dqn(None, type=f"{__name__}:Net").get_attribute("model")) is Net
    with pytest.raises(ConfigError, match=r"model '.*:Net': .*unexpected keyword argument 'width'"):
        dqn(None, type=f"{__name__}:Net", width=3)


def test_arguments_that_are_handed_on_are_known() -> None:
    assert "num_quantiles" in (arguments_of(FQF) or {})


def test_numbers_of_a_model_of_ones_own_may_be_any_and_ours_are_sizes() -> None:
    policy = get_policy_cls(dict(type="dqn"))
    own = {"type": f"{__name__}:Net", "columns": -1}

    assert list(model_faults(policy, {"model": own})) == []
    assert [path for path, _ in model_faults(policy, {"model": {"encoder_hidden_size_list": [0]}})] == [
        "model.encoder_hidden_size_list"
    ]
