"""Networks with an actor and a critic of its actions: of DDPG, TD3, SAC and IQL, of discrete SAC, of PDQN and MP-DQN.

SQN has the critics alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from ding_like.data.spaces import hybrid_mask, hybrid_sizes
from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsShape, build_encoder, has_images, lay_out
from ding_like.model.layers import (
    Activation,
    Block,
    DiscreteHead,
    DuelingHead,
    LinearStack,
    NormType,
    ObsTensor,
    as_sizes,
    build_activation,
    build_mlp,
    check_no_norm,
    check_norm,
)
from ding_like.model.q_networks import one_action
from ding_like.model.vac import GaussianHead
from ding_like.utils.registries import MODEL_REGISTRY

NORM_EPS = 1e-5  # that of nn.LayerNorm
ActionKind = Literal["regression", "reparameterization"]


class ParallelMLP(nn.Module):
    """`num` MLPs of one shape side by side, each layer as one batched product: faster than one after the other.

    `sizes` are input, hidden and output widths; with `norm_type` 'LN' hidden layers have layer normalisation
    behind their activation (Tarasov et al. 2023). Weights begin as those of nn.Linear do.
    """

    def __init__(
        self, num: int, sizes: Sequence[int], *, activation: Activation = "relu", norm_type: NormType | None = None
    ) -> None:
        super().__init__()
        self.num = num
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            bound = fan_in**-0.5
            self.weights.append(nn.Parameter(torch.empty(num, fan_in, fan_out).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(num, 1, fan_out).uniform_(-bound, bound)))
        self.activation = build_activation(activation)
        check_norm(norm_type)
        normed = sizes[1:-1] if norm_type else ()
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(num, 1, width)) for width in normed)
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(num, 1, width)) for width in normed)

    def forward(self, x: Tensor, num: int | None = None) -> Tensor:
        """Return [N, B, output] of [B, input], or of an input for each network [N, B, input].

        With `num` it is of the first so many networks.
        """
        x = x if x.dim() == 3 else x.expand(self.num if num is None else num, *x.shape)
        # A slice of everything costs a copy of its gradient.
        taken = None if num == self.num else num

        def first(part: Tensor) -> Tensor:
            return part if taken is None else part[:taken]

        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(first(bias), x, first(weight))
            if layer < last:
                x = self.activation(x)
                if len(self.scales):
                    x = torch.addcmul(
                        first(self.shifts[layer]), layer_norm(x, x.shape[-1:], eps=NORM_EPS), first(self.scales[layer])
                    )
        return x


class SeparateMLP(nn.Module):
    """`num` stacks of residual blocks, each with an output layer, one after the other; see `build_mlp`."""

    def __init__(self, num: int, sizes: Sequence[int], *, activation: Activation, block: Block) -> None:
        super().__init__()
        self.networks = nn.ModuleList(
            LinearStack(
                *build_mlp(sizes[0], sizes[1:-1], activation=activation, block=block), nn.Linear(sizes[-2], sizes[-1])
            )
            for _ in range(num)
        )

    def forward(self, x: Tensor, num: int | None = None) -> Tensor:
        """Return what `ParallelMLP` does."""
        networks = self.networks[:num]
        inputs = x if x.dim() == 3 else [x] * len(networks)
        return torch.stack([network(each) for network, each in zip(networks, inputs, strict=True)])


class Critic(nn.Module):
    """`num` networks of values: of one action that goes in (`action_size`), or of each of `num_actions`.

    With `num_points` the value of an action that goes in is so many numbers that describe its return: quantiles, or
    logits of fixed returns. Vectors and the action enter together; images are encoded first, once for all `num`, also
    one among other parts.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        *,
        num: int,
        action_size: int = 0,
        num_actions: int = 1,
        num_points: int | None = None,
        hidden_sizes: Sequence[int],
        image_sizes: Sequence[int] | None,
        activation: Activation,
        block: Block | None = None,
        norm_type: NormType | None = None,
    ) -> None:
        super().__init__()
        self.encoder = lay_out(obs_shape, image_sizes, activation=activation)
        self.num_points = num_points
        sizes = [self.encoder.output_size + action_size, *hidden_sizes, num_points or num_actions]
        self.q: ParallelMLP | SeparateMLP
        if block is None:
            self.q = ParallelMLP(num, sizes, activation=activation, norm_type=norm_type)
        else:
            check_no_norm(norm_type)
            self.q = SeparateMLP(num, sizes, activation=activation, block=block)

    def forward(self, obs: ObsTensor, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Return values [N, B] of observations [B, O...], or a dict of them, and actions [B, A] in [-1, 1].

        Actions may be one for each network [N, B, A]. With `num_points` values are [N, B, M]; without actions, those of
        all of them [N, B, A]. With `num` they are those of the first so many networks. Raises SchemaError for
        observations of another shape.
        """
        features = self.encoder(obs).to(next(self.q.parameters()).dtype)
        if action is not None:
            features = torch.cat([features.expand(*action.shape[:-1], -1), action], dim=-1)
        values: Tensor = self.q(features, num)
        return values if action is None or self.num_points else values.squeeze(2)


class FirstCritic(nn.Module):
    """First of the networks of a critic, on the weights that it has there."""

    def __init__(self, critic: Critic) -> None:
        super().__init__()
        self.critic = critic

    def forward(self, obs: ObsTensor, action: Tensor) -> Tensor:
        """Return values [1, B]; see `Critic`."""
        return cast(Tensor, self.critic(obs, action, 1))


class QAC(nn.Module):
    """Network that gives what its actor does."""

    actor: LinearStack
    critic: nn.Module

    def forward(self, obs: ObsTensor) -> Tensor:
        """Return what the actor gives."""
        return cast(Tensor, self.actor(obs))


@MODEL_REGISTRY.register("continuous_qac")
class ContinuousQAC(QAC):
    """Actor, `actor(obs)`, and critics, `critic(obs, action) -> [N, B]`, without shared weights.

    There is one critic, or two (`twin_critic`), or `num_critics`; with `num_quantiles` each gives so many [N, B, M],
    with `n_atom` logits of so many returns, evenly spaced from `v_min` to `v_max`, which are given with it.

    The actor gives an action in [-1, 1] by a tanh ('regression', [B, A]), or mean and log standard deviation of a
    Gaussian ('reparameterization', [B, 2 A]). Both have 1 + `..._head_layer_num` hidden layers of
    `..._head_hidden_size`; on images the first of these is a convolutional encoder of `encoder_hidden_size_list`
    (None: the network of Mnih et al. 2015), one for the actor and one for the critics. With `block` 'simba' the hidden
    layers behind the first are residual blocks (`build_mlp`); with `critic_norm_type` 'LN' hidden layers of critics
    have layer normalisation behind their activation. Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        action_space: ActionKind,
        twin_critic: bool = False,
        *,
        actor_head_hidden_size: int = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        num_critics: int | None = None,
        num_quantiles: int | None = None,
        v_min: float | None = None,
        v_max: float | None = None,
        n_atom: int | None = None,
        encoder_hidden_size_list: Sequence[int] | None = None,
        activation: Activation = "relu",
        block: Block | None = None,
        critic_norm_type: NormType | None = None,
    ) -> None:
        super().__init__()
        self.v_min, self.v_max, self.n_atom = v_min, v_max, n_atom
        _check_critics(v_min, v_max, n_atom, num_quantiles, num_critics)
        actions = as_sizes("action_shape", action_shape)
        if len(actions) != 1:
            raise ConfigError(f"action_shape is {actions}, but the 'continuous_qac' model needs one length of a vector")
        if action_space not in ("regression", "reparameterization"):
            raise ConfigError(f"action_space is {action_space!r}; expected 'regression' or 'reparameterization'")
        is_image = has_images(obs_shape)
        if encoder_hidden_size_list is not None and not is_image:
            raise ConfigError(
                f"encoder_hidden_size_list is for images (C, H, W), but obs_shape is {obs_shape}; "
                "set actor_head_hidden_size and critic_head_hidden_size"
            )
        first = encoder_hidden_size_list if is_image else [actor_head_hidden_size]
        is_direct = action_space == "regression"
        head: dict[str, Any] = dict(hidden_size=actor_head_hidden_size, layer_num=actor_head_layer_num)
        head.update(activation=activation, block=block, last=[nn.Tanh()] if is_direct else [])
        self.actor = _actor(obs_shape, first, actions[0] if is_direct else 2 * actions[0], **head)
        self.critic = Critic(
            obs_shape,
            num=num_critics or (2 if twin_critic else 1),
            num_points=num_quantiles or n_atom,
            action_size=actions[0],
            hidden_sizes=as_sizes("critic_head_hidden_size", critic_head_hidden_size)
            * (critic_head_layer_num + (not is_image)),
            image_sizes=encoder_hidden_size_list,
            activation=activation,
            block=block,
            norm_type=critic_norm_type,
        )


def _check_critics(
    v_min: float | None, v_max: float | None, n_atom: int | None, num_quantiles: int | None, num_critics: int | None
) -> None:
    """Raise ConfigError for critics that give two kinds of distributions, a part of one, or for a number below 1."""
    support = (v_min, v_max, n_atom)
    if support != (None, None, None) and (None in support or num_quantiles is not None):
        raise ConfigError(
            f"v_min is {v_min}, v_max {v_max}, n_atom {n_atom}, num_quantiles {num_quantiles}; expected the first "
            "three together, for logits of fixed returns, or num_quantiles alone"
        )
    for name, number in (("num_critics", num_critics), ("num_quantiles", num_quantiles), ("n_atom", n_atom)):
        if number is not None:
            as_sizes(name, number)


@MODEL_REGISTRY.register("continuous_qvac")
class ContinuousQVAC(QAC):
    """Actor, critics as those of `ContinuousQAC`, and `value(obs) -> [B, 1]`, a network of the critics' sizes.

    The actor gives mean and log standard deviation of a Gaussian [B, 2 A]: the mean within (-1, 1) by a tanh, one
    deviation for each dimension, the same in all states. Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        action_space: Literal["reparameterization"] = "reparameterization",
        twin_critic: bool = True,
        *,
        actor_head_hidden_size: int = 256,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int = 256,
        critic_head_layer_num: int = 1,
        encoder_hidden_size_list: Sequence[int] | None = None,
        activation: Activation = "relu",
        block: Block | None = None,
    ) -> None:
        super().__init__()
        if action_space != "reparameterization":
            raise ConfigError(
                f"action_space is {action_space!r}; the 'continuous_qvac' model has 'reparameterization' alone"
            )
        layers: dict[str, Any] = dict(activation=activation, block=block)  # Any: of each keyword its own
        of_critics = dict(critic_head_hidden_size=critic_head_hidden_size, critic_head_layer_num=critic_head_layer_num)
        sizes: dict[str, Any] = dict(encoder_hidden_size_list=encoder_hidden_size_list, **of_critics, **layers)
        self.critic = ContinuousQAC(obs_shape, action_shape, action_space, twin_critic, **sizes).critic
        (actions,) = as_sizes("action_shape", action_shape)
        is_image = has_images(obs_shape)
        layers.update(hidden_size=actor_head_hidden_size, layer_num=actor_head_layer_num)
        first = encoder_hidden_size_list if is_image else [actor_head_hidden_size]
        self.actor = _actor(obs_shape, first, actions, build_head=partial(GaussianHead, bound_type="tanh"), **layers)
        layers.update(hidden_size=critic_head_hidden_size, layer_num=critic_head_layer_num)
        first = encoder_hidden_size_list if is_image else [critic_head_hidden_size]
        self.value = _actor(obs_shape, first, 1, **layers)


@MODEL_REGISTRY.register("discrete_qac")
class DiscreteQAC(QAC):
    """Actor, `actor(obs) -> [B, A]` logits, and one critic or two, `critic(obs) -> [N, B, A]`, sharing nothing.

    On vectors both begin with hidden layers of `encoder_hidden_size_list` (None: one, as wide as those that follow), on
    images with a convolutional encoder of these sizes (None: the network of Mnih et al. 2015), one for the actor and
    one for the critics; then come `..._head_layer_num` hidden layers of `..._head_hidden_size`. With `block` 'simba'
    the hidden layers behind the first are residual blocks, on vectors (`build_mlp`).
    Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        twin_critic: bool = False,
        *,
        encoder_hidden_size_list: Sequence[int] | None = None,
        actor_head_hidden_size: int = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = "relu",
        block: Block | None = None,
    ) -> None:
        super().__init__()
        actions = one_action(action_shape, model="discrete_qac")
        given, is_image = encoder_hidden_size_list, has_images(obs_shape)
        self.critic = _critic_of_all(
            obs_shape,
            actions,
            num=2 if twin_critic else 1,
            encoder_sizes=given,
            hidden_size=critic_head_hidden_size,
            layer_num=critic_head_layer_num,
            activation=activation,
            block=block,
        )
        head: dict[str, Any] = dict(hidden_size=actor_head_hidden_size, layer_num=actor_head_layer_num)
        sizes = [actor_head_hidden_size] if given is None and not is_image else given
        self.actor = _actor(obs_shape, sizes, actions, activation=activation, block=block, **head)


@MODEL_REGISTRY.register("discrete_critics")
class DiscreteCritics(nn.Module):
    """One critic or two (`twin_critic`) of discrete actions, `critic(obs) -> [N, B, A]`, those of `DiscreteQAC`."""

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        twin_critic: bool = False,
        *,
        encoder_hidden_size_list: Sequence[int] | None = None,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = "relu",
        block: Block | None = None,
    ) -> None:
        super().__init__()
        self.critic = _critic_of_all(
            obs_shape,
            one_action(action_shape, model="discrete_critics"),
            num=2 if twin_critic else 1,
            encoder_sizes=encoder_hidden_size_list,
            hidden_size=critic_head_hidden_size,
            layer_num=critic_head_layer_num,
            activation=activation,
            block=block,
        )


def _critic_of_all(
    obs_shape: ObsShape,
    num_actions: int,
    *,
    num: int,
    encoder_sizes: Sequence[int] | None,
    hidden_size: int,
    layer_num: int,
    activation: Activation,
    block: Block | None,
) -> Critic:
    """Return critics of all discrete actions."""
    # Of vectors, the first layers are the encoder's in name only: each critic has its own.
    first = [] if has_images(obs_shape) else [hidden_size] if encoder_sizes is None else list(encoder_sizes)
    return Critic(
        obs_shape,
        num=num,
        num_actions=num_actions,
        hidden_sizes=[*first, *[hidden_size] * layer_num],
        image_sizes=encoder_sizes,
        activation=activation,
        block=block,
    )


def _actor(
    obs_shape: ObsShape,
    encoder_sizes: Sequence[int] | None,
    num_outputs: int,
    *,
    activation: Activation,
    hidden_size: int,
    layer_num: int,
    block: Block | None,
    last: Sequence[nn.Module] = (),
    build_head: Callable[..., nn.Module] = DiscreteHead,
) -> LinearStack:
    """Return an encoder, a head of `layer_num` hidden layers, which `block` makes one stack, and what follows it."""
    if block is not None and encoder_sizes is not None:
        encoder_sizes, layer_num = [*encoder_sizes, *[hidden_size] * layer_num], 0
    encoder = build_encoder(obs_shape, encoder_sizes, activation=activation, block=block)
    head = build_head(
        encoder.output_size, num_outputs, hidden_size=hidden_size, layer_num=layer_num, activation=activation
    )
    return LinearStack(encoder, head, *last)


class HybridCritic(nn.Module):
    """Values of K choices, given P parameters in [-1, 1].

    A vector and the parameters enter `q` together; images are encoded first. By default one pass gives the values of
    all choices, and so each depends on all parameters. With `multi_pass` there is one pass for each choice, which sees
    its own parameters (`mask` [K, P]) and zeros for the others; its output for that choice is taken (Bester et al.
    2019, section 3).
    """

    mask: Tensor

    def __init__(
        self,
        obs_shape: ObsShape,
        mask: Any,
        *,
        multi_pass: bool,
        hidden_size_list: Sequence[int],
        dueling: bool,
        head: Mapping[str, Any],  # of each keyword of a head its own
        **layers: Any,  # activation and norm_type
    ) -> None:
        super().__init__()
        self.multi_pass = multi_pass
        self.register_buffer("mask", torch.as_tensor(mask, dtype=torch.float32), persistent=False)
        num_choices, num_parameters = self.mask.shape
        self.encoder = lay_out(obs_shape, activation=layers["activation"])
        self.q = nn.Sequential(
            build_mlp(self.encoder.output_size + num_parameters, hidden_size_list, **layers),
            (DuelingHead if dueling else DiscreteHead)(hidden_size_list[-1], num_choices, **head, **layers),
        )

    def forward(self, obs: ObsTensor, parameters: Tensor) -> Tensor:
        """Return values [B, K] of observations [B, O...], or a dict of them, and parameters [B, P].

        Raises SchemaError for observations of another shape.
        """
        features = self.encoder(obs).to(parameters.dtype)
        if not self.multi_pass:
            return cast(Tensor, self.q(torch.cat([features, parameters], dim=1)))
        num_choices = len(self.mask)
        own = parameters.unsqueeze(1) * self.mask.to(parameters.dtype)  # [B, K, P]
        seen = torch.cat([features.unsqueeze(1).expand(-1, num_choices, -1), own], dim=2)
        every: Tensor = self.q(seen.flatten(0, 1)).view(-1, num_choices, num_choices)
        return every.diagonal(dim1=1, dim2=2)


@MODEL_REGISTRY.register("pdqn")
class PDQN(nn.Module):
    """Actor, `actor(obs) -> [B, P]`, the parameters of all choices, and critic, `critic(obs, parameters) -> [B, K]`.

    Parameters lie in [-1, 1] by a tanh; the critic gives the values of the choices. The two share no weights.
    Both have the hidden layers `encoder_hidden_size_list`, on images behind a convolutional encoder, and a head of
    `head_layer_num` hidden layers; the critic's has two streams with `dueling`. `action_shape` is
    dict(action_type_shape=K, action_args_shape=P), `action_mask` [K, P] marks which parameters belong to which choice
    (None: all to all), which `multi_pass` needs. Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: Mapping[str, int],
        *,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        dueling: bool = True,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        multi_pass: bool = False,
        action_mask: Sequence[Sequence[int]] | None = None,
    ) -> None:
        super().__init__()
        _, num_parameters = hybrid_sizes(action_shape)
        sizes = as_sizes("encoder_hidden_size_list", encoder_hidden_size_list)
        if not sizes:
            raise ConfigError("encoder_hidden_size_list is empty; expected the widths of one hidden layer or more")
        layers: dict[str, Any] = dict(activation=activation, norm_type=norm_type)  # Any: of each keyword its own
        head: dict[str, Any] = dict(hidden_size=head_hidden_size, layer_num=head_layer_num)
        is_image = has_images(obs_shape)
        encoder = build_encoder(obs_shape, None if is_image else sizes, **layers)
        behind = build_mlp(encoder.output_size, sizes, **layers) if is_image else LinearStack()
        self.actor = LinearStack(encoder, behind, DiscreteHead(sizes[-1], num_parameters, **head, **layers), nn.Tanh())
        self.critic = HybridCritic(
            obs_shape,
            hybrid_mask(action_shape, action_mask),
            multi_pass=multi_pass,
            hidden_size_list=sizes,
            dueling=dueling,
            head=head,
            **layers,
        )

    def choose(self, obs: ObsTensor) -> Tensor:
        """Return the values of all choices and their parameters side by side, [B, K + P]."""
        parameters = self.actor(obs)
        return torch.cat([self.critic(obs, parameters), parameters], dim=1)

    forward = choose
