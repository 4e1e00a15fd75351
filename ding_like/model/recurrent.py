"""Remember: recurrent layers between an encoder and its heads, over sequences [B, T, ...]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from ding_like.data.obs import map_obs
from ding_like.errors import ConfigError
from ding_like.types import Array

CellType = Literal["lstm", "gru"]
_LAYERS: dict[str, tuple[Callable[..., nn.RNNBase], tuple[str, ...]]] = {
    "lstm": (nn.LSTM, ("h", "c")),
    "gru": (nn.GRU, ("h",)),
}


class RecurrentCore(nn.Module):
    """Run an LSTM or a GRU over sequences of features [B, T, F]; its state is columns [B, H] by name.

    The state of an LSTM (Hochreiter and Schmidhuber 1997) is `h` and `c`, that of a GRU (Cho et al. 2014) `h`; before
    an episode both are zero. Raises ConfigError for another type or a size below 1.
    """

    def __init__(self, input_size: int, hidden_size: int, *, cell_type: CellType = "lstm") -> None:
        super().__init__()
        if cell_type not in _LAYERS:
            raise ConfigError(f"the recurrent layer is {cell_type!r}; expected 'lstm' or 'gru'")
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


# Any: a tensor, or a dict of them.
def over_time(module: nn.Module, x: Any) -> Tensor:
    """Apply a module for single steps to sequences: [B, T, ...] to [B, T, F]; dicts of such as one.

    In memory the steps come first.
    """
    first = x
    while isinstance(first, dict):
        first = next(iter(first.values()))
    num_rows, num_steps = first.shape[:2]
    features: Tensor = module(map_obs(lambda part: part.transpose(0, 1).flatten(0, 1), x))
    return features.view(num_steps, num_rows, -1).transpose(0, 1)
