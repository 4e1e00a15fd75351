"""Networks of actor-critic methods: what to do, and what a state or a history is worth."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor, nn

from ding_like.data.spaces import hybrid_sizes
from ding_like.errors import ConfigError
from ding_like.model.encoder import Encoder, ObsShape, build_encoder
from ding_like.model.layers import (
    Activation,
    Block,
    CellType,
    DiscreteHead,
    NormType,
    ObsTensor,
    RecurrentCore,
    as_sizes,
    hidden_layers,
    init_orthogonal,
    over_time,
)
from ding_like.types import Array
from ding_like.utils.registries import MODEL_REGISTRY

ActionSpace = Literal["discrete", "continuous", "hybrid"]
# The number of discrete actions, a list of them, the number of continuous ones, or of hybrid ones what
# `data.spaces.hybrid_sizes` reads.
ActionShape: TypeAlias = "int | Sequence[int] | Mapping[str, int]"
SigmaType = Literal["independent", "conditioned", "fixed"]
BoundType = Literal["tanh"]

# A sigma computed from the state is kept within e^-20 .. e^2, where it and its square stay finite in float32.
LOG_SIGMA_RANGE = (-20.0, 2.0)


class GaussianHead(nn.Module):
    """Mean and log standard deviation of A actions, side by side [B, 2 A], on hidden layers (`settings`).

    `sigma_type` 'independent' learns one sigma per action, the same in all states; 'conditioned' computes it from the
    state; both begin at `initial_sigma`. 'fixed' keeps `fixed_sigma_value`. `bound_type` 'tanh' keeps the mean within
    (-1, 1). Raises ConfigError for another choice or a sigma that is not positive.
    """

    log_sigma: Tensor  # [A], a parameter, or a buffer if fixed; a 'conditioned' head has `sigma_layer` instead

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        sigma_type: SigmaType = "independent",
        initial_sigma: float = 1.0,
        fixed_sigma_value: float = 0.3,
        bound_type: BoundType | None = None,
        **settings: Any,  # those of `hidden_layers`
    ) -> None:
        super().__init__()
        start = fixed_sigma_value if sigma_type == "fixed" else initial_sigma
        if start <= 0 or bound_type not in (None, "tanh"):
            raise ConfigError(
                f"the actor's head has sigma {start}, bound_type {bound_type!r}; expected a sigma above 0, and None or "
                "'tanh'"
            )
        self.main, width = hidden_layers(input_size, **settings)
        self.mu = nn.Linear(width, output_size)
        self.bound_type = bound_type
        self.sigma_layer: nn.Linear | None = None
        self._log_start = math.log(start)
        log_sigma = torch.full((output_size,), self._log_start)
        if sigma_type == "conditioned":
            self.sigma_layer = nn.Linear(width, output_size)
        elif sigma_type == "independent":
            self.log_sigma = nn.Parameter(log_sigma)
        elif sigma_type == "fixed":
            self.register_buffer("log_sigma", log_sigma)
        else:
            raise ConfigError(f"sigma_type is {sigma_type!r}; expected 'independent', 'conditioned' or 'fixed'")

    def init_orthogonal(self, gain: float) -> None:
        """Begin with means near 0 and sigma at its start; see `model.mlp.init_orthogonal`."""
        init_orthogonal(self.mu, gain)
        if self.sigma_layer is not None:
            init_orthogonal(self.sigma_layer, gain)
            nn.init.constant_(self.sigma_layer.bias, self._log_start)

    def forward(self, x: Tensor) -> Tensor:
        features = self.main(x)
        mu = self.mu(features)
        if self.bound_type is not None:
            mu = torch.tanh(mu)
        if self.sigma_layer is None:
            log_sigma = self.log_sigma.expand_as(mu)
        else:
            log_sigma = self.sigma_layer(features).clamp(*LOG_SIGMA_RANGE)
        return torch.cat([mu, log_sigma], dim=1)


class HybridHead(nn.Module):
    """Logits of K choices, and mean and log standard deviation of P parameters [B, K + 2 P], on the same hidden layers.

    `gaussian` are the keywords of `GaussianHead` that say what sigma is, `settings` those of `hidden_layers`.
    """

    def __init__(
        self,
        input_size: int,
        num_choices: int,
        num_parameters: int,
        *,
        gaussian: Mapping[str, Any],  # of each keyword its own
        **settings: Any,
    ) -> None:
        super().__init__()
        self.main, width = hidden_layers(input_size, **settings)
        self.choice = nn.Linear(width, num_choices)
        self.parameters_head = GaussianHead(width, num_parameters, layer_num=0, **gaussian)

    def init_orthogonal(self, gain: float) -> None:
        """Begin with all choices about equally likely, means near 0 and sigma at its start."""
        init_orthogonal(self.choice, gain)
        self.parameters_head.init_orthogonal(gain)

    def forward(self, x: Tensor) -> Tensor:
        features = self.main(x)
        return torch.cat([self.choice(features), self.parameters_head(features)], dim=1)


ActorHead: TypeAlias = GaussianHead | DiscreteHead | HybridHead


class ActorCritic(nn.Module):
    """Actor and critic, each an encoder chosen by the observation's shape and a head.

    `action_shape` is the number of discrete actions, a list of them where there are several at once, the number of
    continuous ones, or of hybrid actions dict(action_type_shape=K, action_args_shape=P). With `share_encoder` both
    heads are on one encoder. With `block` 'simba' encoders are made of residual blocks (`build_mlp`). The actor gives
    logits [B, A] (of several actions side by side), mean and log sigma [B, 2 A] as `GaussianHead` does, or all three
    [B, K + 2 P]; `action_mask` [K, P], which parameters belong to which choice, is read by the policy. With
    `orthogonal_init` the weights begin orthogonal: gain sqrt(2) in hidden layers, 0.01 at the actor's output, so that
    all actions are about equally likely, and 1 at the critic's (Engstrom et al. 2020). Raises ConfigError for sizes
    that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: ActionShape,
        *,
        action_space: ActionSpace = "discrete",
        action_mask: Sequence[Sequence[int]] | None = None,
        share_encoder: bool = True,
        encoder_hidden_size_list: Sequence[int] | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
        actor_head_hidden_size: int | None = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int | None = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        block: Block | None = None,
        sigma_type: SigmaType = "independent",
        initial_sigma: float = 1.0,
        fixed_sigma_value: float = 0.3,
        bound_type: BoundType | None = None,
        orthogonal_init: bool = True,
    ) -> None:
        super().__init__()
        layers: dict[str, Any] = dict(activation=activation, norm_type=norm_type)  # Any: of each keyword its own
        convolutions: dict[str, Any] = dict(kernel_size=encoder_kernel_size, stride=encoder_stride)
        encoders = [
            self._build_encoder(which, obs_shape, encoder_hidden_size_list, block=block, **convolutions, **layers)
            for which in (("actor",) if share_encoder else ("actor", "critic"))
        ]
        self.share_encoder = share_encoder
        if share_encoder:
            self.encoder = encoders[0]
        else:
            self.actor_encoder, self.critic_encoder = encoders
        width = self._build_middle(encoders[0].output_size)
        self.actor_head = build_actor_head(
            width,
            action_shape,
            action_space=action_space,
            gaussian=dict(
                sigma_type=sigma_type,
                initial_sigma=initial_sigma,
                fixed_sigma_value=fixed_sigma_value,
                bound_type=bound_type,
            ),
            hidden_size=actor_head_hidden_size,
            layer_num=actor_head_layer_num,
            **layers,
        )
        layers.update(hidden_size=critic_head_hidden_size, layer_num=critic_head_layer_num)
        self.critic_head = DiscreteHead(width, 1, **layers)
        if orthogonal_init:
            self._init_orthogonal()

    def _build_encoder(self, which: str, obs_shape: ObsShape, *args: Any, **settings: Any) -> Encoder:
        """Make the encoder of the 'actor', which may be of both, or of the 'critic'; `build_encoder` has the rest."""
        return build_encoder(obs_shape, *args, **settings)

    def _build_middle(self, width: int) -> int:
        """Make what is between an encoder of this width and the heads; return the width of the heads' input."""
        return width

    def _init_orthogonal(self) -> None:
        init_orthogonal(self)
        init_orthogonal(self.critic_head.main[-1], gain=1.0)
        if isinstance(self.actor_head, DiscreteHead):
            init_orthogonal(self.actor_head.main[-1], gain=0.01)
        else:
            self.actor_head.init_orthogonal(gain=0.01)


@MODEL_REGISTRY.register("vac")
class VAC(ActorCritic):
    """Feed-forward actor and critic."""

    def towers(self) -> tuple[nn.Sequential, nn.Sequential]:
        """Return actor and critic, each as a stack of its encoder and head; the layers are this network's own."""
        encoders = (self.encoder,) * 2 if self.share_encoder else (self.actor_encoder, self.critic_encoder)
        return nn.Sequential(encoders[0], self.actor_head), nn.Sequential(encoders[1], self.critic_head)

    def actor(self, x: ObsTensor) -> Tensor:
        """Return what the action distribution is made of, [B, P], for observations [B, O...]."""
        return cast(Tensor, self.actor_head((self.encoder if self.share_encoder else self.actor_encoder)(x)))

    def critic(self, x: ObsTensor) -> Tensor:
        """Return the values [B] of observations [B, O...]."""
        value: Tensor = self.critic_head((self.encoder if self.share_encoder else self.critic_encoder)(x))
        return value.squeeze(1)

    def actor_critic(self, x: ObsTensor) -> tuple[Tensor, Tensor]:
        """Return what `actor` and `critic` do; a shared encoder runs once."""
        if not self.share_encoder:
            return self.actor(x), self.critic(x)
        features = self.encoder(x)
        return self.actor_head(features), self.critic_head(features).squeeze(1)

    def forward(self, x: ObsTensor) -> dict[str, Tensor]:
        """Return {'logit': what the action distribution is made of [B, P], 'value': [B]}."""
        logit, value = self.actor_critic(x)
        return {"logit": logit, "value": value}


@MODEL_REGISTRY.register("pg")
class PG(VAC):
    """Network of REINFORCE: a policy and a baseline of equal layers that share none.

    `head_hidden_size` and `head_layer_num` are of both heads; `settings` are VAC's.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        action_space: ActionSpace = "discrete",
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        **settings: Any,  # of each keyword its own
    ) -> None:
        settings.update(action_space=action_space, encoder_hidden_size_list=encoder_hidden_size_list)
        settings.update(actor_head_hidden_size=head_hidden_size, critic_head_hidden_size=head_hidden_size)
        settings.update(actor_head_layer_num=head_layer_num, critic_head_layer_num=head_layer_num)
        super().__init__(obs_shape, action_shape, share_encoder=False, **settings)


@MODEL_REGISTRY.register("bc")
class BC(nn.Module):
    """Actor alone, an encoder chosen by the observation's shape and a head; arguments are those of `ActorCritic`.

    The head has `head_layer_num` hidden layers of `head_hidden_size` (None: as wide as its input) before its output.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        *,
        action_space: ActionSpace = "discrete",
        encoder_hidden_size_list: Sequence[int] | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        block: Block | None = None,
        sigma_type: SigmaType = "independent",
        initial_sigma: float = 1.0,
        fixed_sigma_value: float = 0.3,
        bound_type: BoundType | None = None,
    ) -> None:
        super().__init__()
        layers: dict[str, Any] = dict(activation=activation, norm_type=norm_type)  # Any: of each keyword its own
        convolutions: dict[str, Any] = dict(kernel_size=encoder_kernel_size, stride=encoder_stride)
        gaussian: dict[str, Any] = dict(sigma_type=sigma_type, initial_sigma=initial_sigma)
        gaussian.update(fixed_sigma_value=fixed_sigma_value, bound_type=bound_type)
        self.encoder = build_encoder(obs_shape, encoder_hidden_size_list, block=block, **convolutions, **layers)
        layers.update(hidden_size=head_hidden_size, layer_num=head_layer_num)
        kind: dict[str, Any] = dict(action_space=action_space, gaussian=gaussian)
        self.actor_head = build_actor_head(self.encoder.output_size, action_shape, **kind, **layers)

    def stack(self) -> nn.Sequential:
        """Return the encoder and the head as one stack; the layers are this network's own."""
        return nn.Sequential(self.encoder, self.actor_head)

    def actor(self, x: ObsTensor) -> Tensor:
        """Return what the action distribution is made of, [B, P], for observations [B, O...]."""
        return cast(Tensor, self.actor_head(self.encoder(x)))

    def forward(self, x: ObsTensor) -> dict[str, Tensor]:
        """Return {'logit': what `actor` returns}."""
        return {"logit": self.actor(x)}


@MODEL_REGISTRY.register("ppg")
class PPG(VAC):
    """Actor and critic with an encoder each, and on the actor's encoder an auxiliary head like the critic's.

    `settings` are VAC's. Source: Cobbe et al. 2021, section 2.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:  # of each argument its own
        super().__init__(*args, share_encoder=False, **settings)
        self.aux_head = copy.deepcopy(self.critic_head)

    def actor_and_aux(self, x: ObsTensor) -> tuple[Tensor, Tensor]:
        """Return what `actor` does and the auxiliary values [B], by one pass of their encoder."""
        features = self.actor_encoder(x)
        return self.actor_head(features), self.aux_head(features).squeeze(1)


State = dict[str, Tensor]


@MODEL_REGISTRY.register("recurrent_vac")
class RecurrentVAC(ActorCritic):
    """Actor and critic on one encoder and one recurrent layer of `hidden_size`; `settings` are VAC's.

    Observations are sequences [B, T, O...]; the state before the first step goes in and that behind the last one comes
    out, columns [B, H] by name. With `orthogonal_init` the recurrent weights begin orthogonal too, with gain 1.
    """

    _shares_encoder = True

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        *,
        cell_type: CellType = "lstm",
        hidden_size: int = 64,
        **settings: Any,  # of each keyword its own
    ) -> None:
        self._cell_type, self._hidden_size = cell_type, hidden_size
        super().__init__(obs_shape, action_shape, share_encoder=self._shares_encoder, **settings)

    def _build_middle(self, width: int) -> int:
        self.core = RecurrentCore(width, self._hidden_size, cell_type=self._cell_type)
        return self._hidden_size

    def _init_orthogonal(self) -> None:
        super()._init_orthogonal()
        for name, parameter in self.core.named_parameters():
            if parameter.dim() > 1:
                nn.init.orthogonal_(parameter)
            elif "bias" in name:
                nn.init.zeros_(parameter)

    @property
    def initial_state(self) -> dict[str, Array]:
        """The recurrent state before an episode, float32 [H] by name."""
        return self.core.initial_state

    def actor(self, x: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (what the action distributions are made of [B, T, P], the state behind the last step)."""
        features, behind = self.core(over_time(self.encoder, x), state)
        return over_time(self.actor_head, features), behind

    def critic(self, x: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (values [B, T], the state behind the last step)."""
        features, behind = self.core(over_time(self.encoder, x), state)
        return over_time(self.critic_head, features).squeeze(2), behind

    def actor_critic(self, x: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, State]:
        """Return what `actor` and `critic` do, remembering once: (outputs, values, state)."""
        features, behind = self.core(over_time(self.encoder, x), state)
        return over_time(self.actor_head, features), over_time(self.critic_head, features).squeeze(2), behind

    def forward(self, x: ObsTensor, state: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return {'logit': [B, T, P], 'value': [B, T], 'state': that behind the last step, by name}."""
        logit, value, behind = self.actor_critic(x, state)
        return {"logit": logit, "value": value, "state": behind}


def build_actor_head(
    input_size: int,
    action_shape: ActionShape,
    *,
    action_space: ActionSpace,
    gaussian: Mapping[str, Any],
    **layers: Any,  # of each keyword of a head its own
) -> ActorHead:
    """Return what turns features into what the action distribution is made of; `layers` are all heads' keywords.

    `gaussian` are the keywords of `GaussianHead` that say what sigma is. Raises ConfigError for sizes that do not fit.
    """
    if action_space == "hybrid":
        num_choices, num_parameters = hybrid_sizes(action_shape)
        return HybridHead(input_size, num_choices, num_parameters, gaussian=gaussian, **layers)
    size = _output_size(action_space, action_shape)
    if action_space == "discrete":
        return DiscreteHead(input_size, size, **layers)
    return GaussianHead(input_size, size, **gaussian, **layers)


def num_outputs(action_shape: ActionShape, *, action_space: str) -> int:
    """Return how many numbers make up an action's distribution: logits, means and log sigmas, or all three."""
    if action_space == "hybrid":
        num_choices, num_parameters = hybrid_sizes(action_shape)
        return num_choices + 2 * num_parameters
    return _output_size(action_space, action_shape) * (2 if action_space == "continuous" else 1)


def _output_size(action_space: str, action_shape: ActionShape) -> int:
    """Return how many logits or continuous actions there are."""
    sizes = as_sizes("action_shape", action_shape)
    if action_space not in ("discrete", "continuous"):
        raise ConfigError(f"action_space is {action_space!r}; expected 'discrete', 'continuous' or 'hybrid'")
    if action_space == "continuous" and len(sizes) != 1:
        raise ConfigError(f"action_shape is {sizes}; continuous actions need one number, how many there are")
    return sum(sizes)
