"""Recurrent layers over sequences equal themselves step by step, and their state follows the lane."""

from __future__ import annotations

import pytest
import torch

from ding_like.errors import ConfigError
from ding_like.model.layers import LayerNormLSTM, RecurrentCore, build_mlp, over_time


@pytest.mark.parametrize("cell_type", ["lstm", "norm_lstm", "gru"])
def test_a_sequence_at_once_equals_its_steps_one_by_one(cell_type: str) -> None:
    torch.manual_seed(0)
    core = RecurrentCore(3, 5, cell_type=cell_type)
    x = torch.randn(4, 7, 3)
    state = {name: torch.randn(4, 5) for name in core.state_names}

    whole, behind = core(x, state)

    for t in range(7):
        y, state = core(x[:, t : t + 1], state)
        torch.testing.assert_close(y[:, 0], whole[:, t])
    for name in core.state_names:
        torch.testing.assert_close(state[name], behind[name])


def test_normalised_gates_are_those_of_the_paper() -> None:
    torch.manual_seed(0)
    cell = LayerNormLSTM(2, 3)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter)
    x, h, c = torch.randn(4, 1, 2), torch.randn(3), torch.randn(3)

    steps, (last_h, last_c) = cell(x, (h.view(1, 1, 3), c.view(1, 1, 3)))

    def normalised(value: torch.Tensor, layer: torch.nn.LayerNorm) -> torch.Tensor:
        spread = (value - value.mean()).square().mean()
        return (value - value.mean()) / (spread + 1e-5).sqrt() * layer.weight + layer.bias

    for t in range(4):
        of_input = normalised(cell.input.weight @ x[t, 0], cell.input_norm)
        gates = of_input + normalised(cell.hidden.weight @ h, cell.hidden_norm)
        i, f, o = (1 / (1 + torch.exp(-gates[k : k + 3])) for k in (0, 3, 6))
        c = f * c + i * gates[9:].tanh()
        h = o * c.tanh()
        torch.testing.assert_close(steps[t, 0], h)
    torch.testing.assert_close(last_h[0, 0], h)
    torch.testing.assert_close(last_c[0, 0], c)


def test_the_state_before_an_episode_is_zero() -> None:
    core = RecurrentCore(3, 5)

    assert {name: value.tolist() for name, value in core.initial_state.items()} == {"h": [0.0] * 5, "c": [0.0] * 5}


def test_a_module_of_single_steps_runs_over_sequences_and_dicts_of_them() -> None:
    torch.manual_seed(0)
    layer = build_mlp(3, [4])
    x = torch.randn(2, 6, 3)

    # Not to the last bit: on some processors a product of other shape is summed in another order.
    torch.testing.assert_close(over_time(layer, x), torch.stack([layer(x[:, t]) for t in range(6)], dim=1))

    class Both(torch.nn.Module):
        def forward(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
            return layer(parts["a"] + parts["b"])

    assert torch.equal(over_time(Both(), {"a": x, "b": x}), over_time(layer, x + x))


@pytest.mark.parametrize(("cell_type", "size"), [("rnn", 4), ("gru", 0)])
def test_other_layers_are_refused(cell_type: str, size: int) -> None:
    with pytest.raises(ConfigError, match="expected"):
        RecurrentCore(3, size, cell_type=cell_type)  # type: ignore[arg-type]
