"""Networks of action values: an encoder chosen by the observation's shape, and a head.

What DQN, C51, QR-DQN and Rainbow need differs by the head alone; IQN, FQF and DRQN have a part of their own in between.
Networks of teams are in `model/mixing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.encoder import ObsShape, build_encoder
from ding_like.model.layers import (
    Activation,
    CellType,
    DiscreteHead,
    DuelingHead,
    NoisyLinear,
    NormType,
    ObsTensor,
    RecurrentCore,
    as_sizes,
    check_noise,
    over_time,
)
from ding_like.types import Array
from ding_like.utils.registries import MODEL_REGISTRY

# Constructors take the arguments of QNetwork beside their own, each of its own type: hence Any. What they set before
# QNetwork's constructor are numbers that it needs, no layers.


class QNetwork(nn.Module):
    """Encoder and head with one output for each action, or with `num_points` N of them.

    `encoder_hidden_size_list` is the encoder's (None: 128-128-64 for vectors, the network of Mnih et al. 2015 for
    images). The head has `head_layer_num` hidden layers of `head_hidden_size` (None: as wide as its input) before its
    linear output, in each of two streams if `dueling`. `dueling=False, head_layer_num=0` is a plain MLP.
    Raises ConfigError for sizes that do not fit.
    """

    num_points: int | None = None
    linear: type[nn.Module] = nn.Linear  # what the head's layers are

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        dueling: bool = True,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        num_actions = one_action(action_shape, model=MODEL_REGISTRY.name_of(type(self)) or type(self).__name__)
        self.encoder = build_encoder(
            obs_shape,
            encoder_hidden_size_list,
            kernel_size=encoder_kernel_size,
            stride=encoder_stride,
            activation=activation,
            norm_type=norm_type,
        )
        self.head = (DuelingHead if dueling else DiscreteHead)(
            self._build_middle(self.encoder.output_size),
            num_actions,
            num_points=self.num_points,
            linear=self.linear,
            hidden_size=head_hidden_size,
            layer_num=head_layer_num,
            activation=activation,
            norm_type=norm_type,
        )

    def _build_middle(self, width: int) -> int:
        """Make what is between an encoder of this width and the head; return the width of the head's input."""
        return width

    def points(self, x: ObsTensor) -> Tensor:
        """Return the head's output, [B, A] or [B, A, N], of observations [B, O...], a tensor or a dict of them."""
        return cast(Tensor, self.head(self.encoder(x)))

    def noisy_points(self, x: ObsTensor, noise: Tensor | None = None) -> Tensor:
        """Do what `points` does under noise, one for all rows [P] or one for each [B, P]; None: by the means.

        Raises SchemaError for noise of another size than the head's `noise_size`.
        """
        features = self.encoder(x)
        check_noise(noise, features.shape[0], self.head.noise_size)
        return cast(Tensor, self.head(features, noise if self.head.noise_size else None))


def one_action(action_shape: int | Sequence[int], *, model: str) -> int:
    """Return the number of discrete actions; ConfigError if there are several actions at a time."""
    actions = as_sizes("action_shape", action_shape)
    if len(actions) != 1:
        raise ConfigError(
            f"action_shape is {actions}, but the '{model}' model needs one number of discrete actions; "
            "flatten the action space in an env wrapper, or choose another model"
        )
    return actions[0]


@dataclass(frozen=True)
class UnderNoise:
    """Network with its noise: what takes observations alone can run it."""

    model: DQN | RainbowDQN
    noise: Tensor | None

    def q(self, x: ObsTensor) -> Tensor:
        return self.model.q(x, self.noise)

    def logits(self, x: ObsTensor) -> Tensor:
        return cast(RainbowDQN, self.model).logits(x, self.noise)


@MODEL_REGISTRY.register("dqn")
class DQN(QNetwork):
    """Network of DQN: the value of every action; with `noise` the head's layers are noisy (Fortunato et al. 2018)."""

    def __init__(self, *args: Any, noise: bool = False, **settings: Any) -> None:
        self.linear = NoisyLinear if noise else nn.Linear
        super().__init__(*args, **settings)
        self.noise_size = self.head.noise_size

    q = QNetwork.noisy_points  # [B, A]

    def under(self, noise: Tensor | None) -> UnderNoise:
        """Return this network with its noise, one for all rows [P] or one for each [B, P]; None: its means."""
        return UnderNoise(self, noise)

    def forward(self, x: ObsTensor) -> dict[str, Tensor]:
        """Return {'logit': action values [B, A]}."""
        return {"logit": self.q(x)}


@MODEL_REGISTRY.register("c51dqn")
class C51DQN(QNetwork):
    """Network of C51: logits of every action's return on `n_atom` values evenly spaced from `v_min` to `v_max`.

    Source: Bellemare et al. 2017, section 4.
    """

    support: Tensor
    distributional = True  # False: no distributions, but values

    def __init__(
        self,
        *args: Any,
        v_min: float = -10.0,
        v_max: float = 10.0,
        n_atom: int = 51,
        dueling: bool = False,
        **settings: Any,
    ) -> None:
        self.num_points = n_atom if self.distributional else None
        super().__init__(*args, dueling=dueling, **settings)
        self.v_min, self.v_max, self.n_atom = float(v_min), float(v_max), n_atom
        self.register_buffer("support", torch.linspace(self.v_min, self.v_max, n_atom), persistent=False)

    logits = QNetwork.points  # [B, A, N]

    def forward(self, x: ObsTensor) -> dict[str, Tensor]:
        """Return {'logit': expected returns [B, A], 'distribution': probabilities [B, A, N]}."""
        distribution = self.logits(x).softmax(-1)
        return {"logit": distribution @ self.support, "distribution": distribution}


@MODEL_REGISTRY.register("qrdqn")
class QRDQN(QNetwork):
    """Network of QR-DQN: `num_quantiles` quantiles of every action's return, in the middle of as many equal shares.

    Source: Dabney et al. 2018, section 4.
    """

    tau: Tensor

    def __init__(self, *args: Any, num_quantiles: int = 32, dueling: bool = False, **settings: Any) -> None:
        self.num_points = num_quantiles
        super().__init__(*args, dueling=dueling, **settings)
        self.num_quantiles = num_quantiles
        self.register_buffer("tau", (torch.arange(num_quantiles) + 0.5) / num_quantiles, persistent=False)

    quantiles = QNetwork.points  # [B, A, N]

    def forward(self, x: ObsTensor) -> dict[str, Tensor]:
        """Return {'logit': expected returns [B, A], 'q': quantiles [B, A, N], 'tau': their fractions [N]}."""
        quantiles = self.quantiles(x)
        return {"logit": quantiles.mean(-1), "q": quantiles, "tau": self.tau}


@MODEL_REGISTRY.register("rainbowdqn")
class RainbowDQN(C51DQN):
    """Network of Rainbow (Hessel et al. 2018): that of C51 with a dueling head of noisy layers.

    `dueling`, `noise` (in the head's layers) and
    `distributional` (False: expected returns alone) can each be switched off.
    """

    def __init__(
        self, *args: Any, distributional: bool = True, noise: bool = True, dueling: bool = True, **settings: Any
    ) -> None:
        self.distributional = distributional
        self.linear = NoisyLinear if noise else nn.Linear
        super().__init__(*args, dueling=dueling, **settings)
        self.noise_size = self.head.noise_size

    def under(self, noise: Tensor | None) -> UnderNoise:
        """Return this network with its noise, one for all rows [P] or one for each [B, P]; None: its means."""
        return UnderNoise(self, noise)

    logits = QNetwork.noisy_points  # [B, A, N], or without `distributional` the action values [B, A]

    def q(self, x: ObsTensor, noise: Tensor | None = None) -> Tensor:
        """Return the action values [B, A] of observations [B, O...], a tensor or a dict of them."""
        output = self.logits(x, noise)
        return output.softmax(dim=2) @ self.support if self.distributional else output

    def forward(self, x: ObsTensor) -> dict[str, Tensor]:
        """Return {'logit': action values [B, A]} without noise."""
        return {"logit": self.q(x)}


class CosineEmbedding(nn.Module):
    """Features [B, N, D] of fractions [B, N]: `relu(W c + b)` of cosines `c_i = cos(pi i fraction)`, i from 0.

    Source: Dabney et al. 2018b, eq. 4.
    """

    def __init__(self, num_cosines: int, output_size: int) -> None:
        super().__init__()
        self.num_cosines = num_cosines
        self.linear = nn.Linear(num_cosines, output_size)

    def forward(self, fractions: Tensor) -> Tensor:
        index = torch.arange(self.num_cosines, dtype=fractions.dtype, device=fractions.device)
        return relu(self.linear(torch.cos(fractions.unsqueeze(-1) * (pi * index))))


@MODEL_REGISTRY.register("iqn")
class IQN(QNetwork):
    """Implicit quantile network (Dabney et al. 2018b): quantiles of every action's return at any fractions.

    A quantile is `head(encoder(obs) * embedding(fraction))`. `num_quantiles` is how many are used to act, at equally
    spaced fractions. `quantile_embedding_size` is the number of cosines that a fraction is embedded by.
    """

    def __init__(
        self,
        *args: Any,
        num_quantiles: int = 32,
        quantile_embedding_size: int = 128,
        dueling: bool = False,
        **settings: Any,
    ) -> None:
        self.num_quantiles = as_sizes("num_quantiles", num_quantiles)[0]
        self._num_cosines = as_sizes("quantile_embedding_size", quantile_embedding_size)[0]
        super().__init__(*args, dueling=dueling, **settings)

    def _build_middle(self, width: int) -> int:
        self.embedding = CosineEmbedding(self._num_cosines, width)
        return width

    def midpoints(self) -> Tensor:
        """Return the middles of `num_quantiles` equal parts of [0, 1], `(i - 0.5) / K`, as [1, K]."""
        weight = self.embedding.linear.weight
        index = torch.arange(self.num_quantiles, dtype=weight.dtype, device=weight.device)
        return (index + 0.5)[None] / self.num_quantiles

    def quantiles(self, x: ObsTensor, fractions: Tensor) -> Tensor:
        """Return the returns [B, A, N] of observations [B, O...] at fractions, [B, N] or [1, N] for all rows.

        `x` is a tensor or a dict of them. Raises SchemaError for fractions of another shape.
        """
        return self.of_features(self.encoder(x), fractions)

    def of_features(self, features: Tensor, fractions: Tensor) -> Tensor:
        """Return the returns [B, A, N] of encoded observations [B, D]; else like `quantiles`."""
        rows = fractions.shape[0]
        if fractions.dim() != 2 or (rows != 1 and rows != features.shape[0]):
            raise SchemaError(
                f"fractions have shape {tuple(fractions.shape)}, expected [{len(features)}, N] or [1, N]: some numbers "
                "for each row, or the same for all"
            )
        mixed = features.unsqueeze(1) * self.embedding(fractions)  # [B, N, D]
        values: Tensor = self.head(mixed.flatten(0, 1))
        return values.view(*mixed.shape[:2], -1).transpose(1, 2)

    def q(self, x: ObsTensor) -> Tensor:
        """Return the expected returns [B, A] of observations [B, O...]: the mean over quantiles at the midpoints."""
        return self.quantiles(x, self.midpoints()).mean(-1)

    def forward(self, x: ObsTensor) -> dict[str, Tensor]:
        """Return {'logit': mean [B, A] of 'q', 'q': quantiles [B, A, K], 'quantiles': their fractions [1, K]}."""
        fractions = self.midpoints()
        values = self.quantiles(x, fractions)
        return {"logit": values.mean(-1), "q": values, "quantiles": fractions}


class Fractions(NamedTuple):
    """Division of [0, 1] into N parts."""

    bounds: Tensor  # [B, N - 1], between the parts: tau_1 to tau_{N-1}
    midpoints: Tensor  # [B, N], of the parts: tau-hat
    widths: Tensor  # [B, N], of the parts; their sum is 1
    entropy: Tensor  # [B], of the widths


class FractionProposal(nn.Module):
    """Layer that proposes how to divide [0, 1] for encoded observations [B, D]: the parts' widths are a softmax.

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
        return Fractions(upper[:, :-1], upper - 0.5 * widths, widths, -(widths * log_widths).sum(-1))


@MODEL_REGISTRY.register("fqf")
class FQF(nn.Module):
    """Quantiles of every action's return at fractions that a network proposes for each observation (Yang et al. 2019).

    `values` is an 'iqn' model, which takes all arguments; `proposal` reads its encoder's features, through which its
    gradient does not go.
    """

    arguments_of = IQN  # whose arguments a config may set

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # IQN's
        super().__init__()
        self.values = IQN(*args, **kwargs)
        self.proposal = FractionProposal(self.values.encoder.output_size, self.values.num_quantiles)

    def predict(self, x: ObsTensor) -> tuple[Tensor, Fractions]:
        """Return (quantiles [B, A, N] at the middles of the proposed parts, the proposal without a gradient)."""
        features = self.values.encoder(x)
        with torch.no_grad():
            fractions = self.proposal(features)
        return self.values.of_features(features, fractions.midpoints), fractions

    def q(self, x: ObsTensor) -> Tensor:
        """Return the expected returns [B, A] of observations [B, O...]: each quantile counts as its part is wide."""
        return self.forward(x)["logit"]

    def forward(self, x: ObsTensor) -> dict[str, Tensor]:
        """Return {'logit': expected returns [B, A], 'q': quantiles [B, A, N], 'quantiles': their fractions [B, N]}."""
        values, fractions = self.predict(x)
        expected = (values * fractions.widths.unsqueeze(1)).sum(-1)
        return {"logit": expected, "q": values, "quantiles": fractions.midpoints}


LSTMType = Literal["normal", "pytorch", "gru"]
_CELLS: dict[LSTMType, CellType] = {"normal": "norm_lstm", "pytorch": "lstm", "gru": "gru"}


@MODEL_REGISTRY.register("drqn")
class DRQN(QNetwork):
    """Network of DRQN and R2D2: the values of all actions given an episode's observations, by a recurrent layer.

    `lstm_type` is "normal", an LSTM with layer-normalised gates, "pytorch", `nn.LSTM`, or "gru"; `lstm_hidden_size` is
    its width (None: that of the encoder's output). With `res_link` the head receives the sum of the recurrent layer's
    input and output.
    """

    def __init__(
        self,
        *args: Any,
        lstm_type: LSTMType = "normal",
        lstm_hidden_size: int | None = None,
        res_link: bool = False,
        **settings: Any,
    ) -> None:
        if lstm_type not in _CELLS:
            raise ConfigError(f"lstm_type is {lstm_type!r}; expected 'normal', 'pytorch' or 'gru'")
        self._cell_type, self._hidden_size, self._res_link = _CELLS[lstm_type], lstm_hidden_size, res_link
        super().__init__(*args, **settings)

    def _build_middle(self, width: int) -> int:
        hidden = width if self._hidden_size is None else self._hidden_size
        if self._res_link and hidden != width:
            raise ConfigError(
                f"res_link adds the encoder's {width} features to the {hidden} of the recurrent layer: give "
                f"lstm_hidden_size={width}, or leave it out"
            )
        self.core = RecurrentCore(width, hidden, cell_type=self._cell_type)
        return hidden

    @property
    def initial_state(self) -> dict[str, Array]:
        """The recurrent state before an episode, float32 [H] by name."""
        return self.core.initial_state

    def run(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (action values [B, T, A], state [B, H] behind the last step) of sequences.

        `obs` is [B, T, O...] or a dict of such, `state` the state before the first step.
        """
        features = over_time(self.encoder, obs)
        remembered, behind = self.core(features, state)
        return over_time(self.head, features + remembered if self._res_link else remembered), behind

    def forward(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return {'logit': action values [B, T, A], 'next_state': state behind the last step [B, H] by name}."""
        values, behind = self.run(obs, state)
        return {"logit": values, "next_state": behind}
