"""`model_wrap` wraps models as policies written for DI-engine do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model import model_wrap

LOGIT = torch.tensor([[0.0, 2.0, 1.0]]).repeat(1000, 1)


class Fixed(nn.Module):
    """Model that returns what it is given."""

    def forward(self, logit: Any, action_mask: Any = None) -> dict[str, Any]:
        return {"logit": logit} if action_mask is None else {"logit": logit, "action_mask": action_mask}


class Counter(nn.Module):
    """Model with memory: its state counts steps."""

    def forward(self, data: dict[str, Any]) -> dict[str, Any]:
        counts = [(0 if state is None else state) + 1 for state in data["prev_state"]]
        return {"logit": data["obs"], "next_state": counts}


def shares(action: Tensor) -> list[float]:
    return [float((action == each).float().mean()) for each in range(3)]


def test_argmax_takes_the_best_legal_action_of_each_of_several() -> None:
    mask = torch.tensor([[1, 0, 1]]).repeat(1000, 1)
    output = model_wrap(Fixed(), wrapper_name="argmax_sample").forward([LOGIT, LOGIT], [mask, torch.ones_like(mask)])

    assert [set(action.tolist()) for action in output["action"]] == [{2}, {1}]


@pytest.mark.parametrize("mask, expected", [(None, [0.1, 0.8, 0.1]), (torch.tensor([1, 1, 0]), [0.15, 0.85, 0.0])])
def test_eps_greedy_explores_legal_actions_with_probability_eps(mask: Tensor | None, expected: list[float]) -> None:
    wrapped = model_wrap(Fixed(), wrapper_name="eps_greedy_sample", generator=torch.Generator().manual_seed(0))
    given = () if mask is None else (mask.repeat(1000, 1),)

    assert shares(wrapped.forward(LOGIT, *given, eps=0.3)["action"]) == pytest.approx(expected, abs=0.04)
    assert shares(wrapped.forward(LOGIT, eps=0.0)["action"]) == [0.0, 1.0, 0.0]


def test_multinomial_draws_by_the_softmax_of_the_logits() -> None:
    wrapped = model_wrap(Fixed(), wrapper_name="multinomial_sample", generator=torch.Generator().manual_seed(0))

    assert shares(wrapped.forward(LOGIT)["action"]) == pytest.approx(LOGIT[0].softmax(0).tolist(), abs=0.04)


def weights_after_updates(update_type: str, kwargs: dict[str, float], updates: int) -> float:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    target = model_wrap(model, wrapper_name="target", update_type=update_type, update_kwargs=kwargs)
    for _ in range(updates):
        target.update({"weight": torch.ones(1, 1)})
    return float(target.weight.detach())


def test_a_target_follows_by_copies_or_by_shares() -> None:
    assert [weights_after_updates("assign", {"freq": 3}, updates) for updates in (2, 3)] == [0.0, 1.0]
    assert weights_after_updates("momentum", {"theta": 0.5}, 2) == 0.75


def test_states_are_kept_by_env_until_they_are_reset() -> None:
    wrapped = model_wrap(Counter(), wrapper_name="hidden_state", state_num=3, save_prev_state=True)
    wrapped.forward({"obs": LOGIT[:3]})
    wrapped.forward({"obs": LOGIT[:2]}, data_id=[0, 2])
    wrapped.reset(data_id=[0])

    assert wrapped.forward({"obs": LOGIT[:3]})["prev_state"] == [None, 1, 2]


def test_wrappers_lie_around_one_another_and_show_the_model() -> None:
    model = nn.Linear(1, 1)
    wrapped = model_wrap(model_wrap(model), "hidden_state", state_num=1)

    assert wrapped.in_features == 1 and wrapped.state_dict().keys() == {"weight", "bias"}


@pytest.mark.parametrize(
    "kwargs, said",
    [
        (dict(wrapper_name="argmax"), "unknown wrapper 'argmax'; there are: base, argmax_sample"),
        (dict(wrapper_name="target", update_type="assign", update_kwargs={"theta": 1}), "expected 'assign' with dict"),
    ],
)
def test_a_wrong_wrapper_is_an_error(kwargs: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_wrap(Fixed(), **kwargs)
