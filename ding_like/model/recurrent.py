"""Recurrent layers between an encoder and its heads, over sequences [B, T, ...]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ding_like.data.obs import map_obs
from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsTensor
from ding_like.types import Array

CellType = Literal["lstm", "norm_lstm", "gru"]
State = tuple[Tensor, Tensor]


class LayerNormLSTM(nn.Module):
    """LSTM with layer-normalised gates (Ba et al. 2016, eq. 20 and 21), called as `nn.LSTM` is.

        i, f, o, g = LN(W_x x_t) + LN(W_h h_{t-1})
        c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
        h_t = sigmoid(o) tanh(c_t)

    Normalised gates do not saturate, so the forget gate stays below 1 and the cell's state bounded over episodes much
    longer than the sequences that are learned from.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, 4 * hidden_size, bias=False)
        self.hidden = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.input_norm = nn.LayerNorm(4 * hidden_size)
        self.hidden_norm = nn.LayerNorm(4 * hidden_size)
        for layer in (self.input, self.hidden):
            nn.init.uniform_(layer.weight, -(hidden_size**-0.5), hidden_size**-0.5)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Return (h of every step [T, B, H], (h, c) behind the last step [1, B, H]) of x [T, B, F] and (h, c)."""
        h, c = state[0].squeeze(0), state[1].squeeze(0)
        size = h.shape[1]
        steps = []
        for of_input in self.input_norm(self.input(x)).unbind(0):
            gates = of_input + self.hidden_norm(self.hidden(h))
            i, f, o = gates[:, : 3 * size].sigmoid().chunk(3, dim=1)
            c = torch.addcmul(f * c, i, gates[:, 3 * size :].tanh())
            h = o * c.tanh()
            steps.append(h)
        return torch.stack(steps), (h.unsqueeze(0), c.unsqueeze(0))


_LAYERS: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "lstm": (nn.LSTM, ("h", "c")),
    "norm_lstm": (LayerNormLSTM, ("h", "c")),
    "gru": (nn.GRU, ("h",)),
}


class RecurrentCore(nn.Module):
    """Recurrent layer over sequences of features [B, T, F]; its state is columns [B, H] by name.

    `cell_type` is "lstm" (Hochreiter and Schmidhuber 1997), "norm_lstm" (`LayerNormLSTM`), both with the state `h` and
    `c`, or "gru" (Cho et al. 2014) with the state `h`. Before an episode the state is zero. Raises ConfigError for
    another type or a size below 1.
    """

    def __init__(self, input_size: int, hidden_size: int, *, cell_type: CellType = "lstm") -> None:
        super().__init__()
        if cell_type not in _LAYERS:
            raise ConfigError(f"the recurrent layer is {cell_type!r}; expected 'lstm', 'norm_lstm' or 'gru'")
        if hidden_size < 1:
            raise ConfigError(f"the recurrent layer has hidden size {hidden_size}; expected a number from 1")
        layer, self.state_names = _LAYERS[cell_type]
        self.rnn = layer(input_size, hidden_size)
        self.output_size = hidden_size

    @property
    def initial_state(self) -> dict[str, Array]:
        """Return the state before an episode, float32 [H] by name."""
        return {name: np.zeros(self.output_size, np.float32) for name in self.state_names}

    def forward(self, x: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (features [B, T, H], state [B, H] behind the last step) for `state` before the first step."""
        before = tuple(state[name].to(x.dtype).unsqueeze(0) for name in self.state_names)
        # Steps first in memory, as `over_time` lays them: that is what the layer runs on, so nothing is copied.
        y, after = self.rnn(x.transpose(0, 1), before if len(before) > 1 else before[0])
        behind = after if isinstance(after, tuple) else (after,)
        return y.transpose(0, 1), {
            name: column.squeeze(0) for name, column in zip(self.state_names, behind, strict=True)
        }


def over_time(module: nn.Module, x: ObsTensor) -> Tensor:
    """Apply a module for single steps to sequences: [B, T, ...] to [B, T, F]; dicts of such as one.

    In memory the steps come first.
    """
    first = x
    while not isinstance(first, Tensor):
        first = next(iter(first.values()))
    num_rows, num_steps = first.shape[:2]
    features: Tensor = module(map_obs(lambda part: part.transpose(0, 1).flatten(0, 1), x))
    return features.view(num_steps, num_rows, -1).transpose(0, 1)
