"""The recurrent Q network: sequences at once and step by step, and sizes that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ding_like.errors import ConfigError
from ding_like.model.q_networks import DRQN

SMALL: dict[str, Any] = dict(encoder_hidden_size_list=[6])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        dict(dueling=False, head_layer_num=0),
        dict(lstm_type="pytorch"),
        dict(lstm_type="gru", res_link=True),
        dict(lstm_hidden_size=5),
    ],
    ids=["dueling", "plain", "pytorch", "gru with link", "own width"],
)
def test_a_sequence_at_once_equals_its_steps_one_by_one(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = DRQN(3, 2, **SMALL, **settings)
    obs = torch.randn(4, 7, 3)
    state = {name: torch.randn(4, len(value)) for name, value in model.initial_state.items()}

    values, behind = model.run(obs, state)

    assert values.shape == (4, 7, 2) and torch.equal(model(obs, state)["logit"], values)
    for t in range(7):
        one, state = model.run(obs[:, t : t + 1], state)
        torch.testing.assert_close(one[:, 0], values[:, t])
    for name, column in behind.items():
        torch.testing.assert_close(state[name], column)


def test_observations_may_be_dicts_with_images() -> None:
    shape = {"board": [1, 8, 8], "speed": 2}
    model = DRQN(shape, 3, [4, 8], encoder_kernel_size=[3], encoder_stride=[1])
    state = {name: torch.from_numpy(value).expand(2, -1) for name, value in model.initial_state.items()}

    values, _ = model.run({"board": torch.rand(2, 5, 1, 8, 8), "speed": torch.rand(2, 5, 2)}, state)

    assert values.shape == (2, 5, 3)


def test_the_link_hands_the_recurrent_layers_input_on() -> None:
    torch.manual_seed(0)
    model = DRQN(3, 2, **SMALL, res_link=True)
    for parameter in model.core.parameters():
        torch.nn.init.zeros_(parameter)  # an LSTM of zeros gives zeros
    obs, state = torch.randn(2, 4, 3), {name: torch.zeros(2, 6) for name in ("h", "c")}

    values, _ = model.run(obs, state)

    torch.testing.assert_close(values.flatten(0, 1), model.head(model.encoder(obs.flatten(0, 1))))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(lstm_type="lstm"), "lstm_type is 'lstm'; expected 'normal', 'pytorch' or 'gru'"),
        (dict(res_link=True, lstm_hidden_size=5), "give lstm_hidden_size=6, or leave it out"),
        (dict(lstm_hidden_size=0), "hidden size 0"),
        (dict(action_shape=[2, 3]), "needs one number of discrete actions"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DRQN(**{"obs_shape": 3, "action_shape": 2, **SMALL, **settings})
