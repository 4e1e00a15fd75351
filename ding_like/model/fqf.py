"""Define the network of the fully parameterised quantile function (Yang et al. 2019), which proposes its fractions."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from torch import Tensor, nn

from ding_like.model.iqn import IQN
from ding_like.utils.registries import MODEL_REGISTRY


class Fractions(NamedTuple):
    """Hold a division of [0, 1] into N parts."""

    bounds: Tensor  # [B, N - 1], between the parts: tau_1 to tau_{N-1}
    midpoints: Tensor  # [B, N], of the parts: tau-hat
    widths: Tensor  # [B, N], of the parts; their sum is 1
    entropy: Tensor  # [B], of the widths

    def detach(self) -> Fractions:
        """Return the same numbers without a gradient."""
        return Fractions(*(part.detach() for part in self))


class FractionProposal(nn.Module):
    """Propose how to divide [0, 1] for encoded observations [B, D]: the parts' widths are a softmax.

    Weights begin near 0, so that the parts begin of nearly equal width. Source: Yang et al. 2019, section 3.2.
    """

    def __init__(self, input_size: int, num_quantiles: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, num_quantiles)
        nn.init.xavier_uniform_(self.linear.weight, gain=0.01)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: Tensor) -> Fractions:
        log_widths = self.linear(features).log_softmax(-1)
        widths = log_widths.exp()
        upper = widths.cumsum(-1)
        return Fractions(
            bounds=upper[:, :-1],
            midpoints=upper - 0.5 * widths,
            widths=widths,
            entropy=-(widths * log_widths).sum(-1),
        )


@MODEL_REGISTRY.register("fqf")
class FQF(nn.Module):
    """Estimate quantiles of every action's return at fractions that a network proposes for each observation.

    `values` is an 'iqn' model, which takes all arguments; `proposal` reads its encoder's features, through which its
    gradient does not go.
    """

    # Any: the arguments of IQN.
    __signature__ = inspect.signature(IQN)  # all that it takes goes to the network of values

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.values = IQN(*args, **kwargs)
        self.proposal = FractionProposal(self.values.encoder.output_size, self.values.num_quantiles)

    def predict(self, x: Any) -> tuple[Tensor, Fractions]:
        """Return (quantiles [B, A, N] at the middles of the proposed parts, the proposal without a gradient)."""
        features = self.values.encoder(x)
        fractions = self.proposal(features.detach()).detach()
        return self.values.of_features(features, fractions.midpoints), fractions

    def q(self, x: Any) -> Tensor:
        """Return the expected returns [B, A] of observations [B, O...]: each quantile counts as its part is wide."""
        values, fractions = self.predict(x)
        return (values * fractions.widths.unsqueeze(1)).sum(-1)

    def forward(self, x: Any) -> dict[str, Tensor]:
        """Return {'logit': expected returns [B, A], 'q': quantiles [B, A, N], 'quantiles': their fractions [B, N]}."""
        values, fractions = self.predict(x)
        expected = (values * fractions.widths.unsqueeze(1)).sum(-1)
        return {"logit": expected, "q": values, "quantiles": fractions.midpoints}
