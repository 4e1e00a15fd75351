"""What a policy calls of its model is declared, and a model of one's own is held to it when the policy is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.q_networks import FQF
from ding_like.policy import create_policy, get_policy_cls
from ding_like.policy.model_methods import arguments_of, model_faults, probe_model
from tests.contracts.policy_cases import CASES, Case, make


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
        shape, sizes = policy.cfg.model.obs_shape, policy._model_sizes()
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


def test_a_model_with_the_methods_is_taken() -> None:
    assert dqn(Net()).learn_mode is not None


@pytest.mark.parametrize(
    ("make_model", "said"),
    [
        (
            lambda: Net(columns=1),
            r"Net.q\(obs\) gave \[\d, 5\] for obs of shape \[\d, 3\]; DQNPolicy expects q\(obs\) -> \[B, A\], ",
        ),
        (lambda: Net(axis=True), r"gave \[1, \d, 4\].*here \[\d, 4\]"),
        (lambda: Net(obs_shape=2), r"Net.q\(obs\) raised for obs of shape .*RuntimeError: .*test_model_methods.py:\d+"),
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


def test_a_model_may_also_be_named_by_its_import_path() -> None:
    policy = dqn(None, type=f"{__name__}:Net")

    assert type(policy.get_attribute("model")) is Net


def test_a_models_own_exception_is_shown_with_its_line() -> None:
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
