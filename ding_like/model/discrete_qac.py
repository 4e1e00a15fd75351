"""Define the actor and the critics of discrete SAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from torch import Tensor, nn

from ding_like.model.continuous_qac import ParallelMLP
from ding_like.model.dqn import one_action
from ding_like.model.encoder import ObsFeatures, ObsShape, build_encoder, check_obs_shape, has_images
from ding_like.model.head import DiscreteHead
from ding_like.model.mlp import Activation, LinearStack, as_sizes
from ding_like.utils.registries import MODEL_REGISTRY


class ActionValues(nn.Module):
    """Estimate the value of every action, `num` times over.

    Images are encoded first, once for all `num`; all else enters each network as it is.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...] | Mapping[str, Any],
        num_actions: int,
        *,
        num: int,
        hidden_sizes: Sequence[int],
        image_sizes: Sequence[int] | None,
        activation: Activation,
    ) -> None:
        super().__init__()
        self.obs_shape = obs_shape
        self.encoder: Any = None  # a module with `output_size`
        if isinstance(obs_shape, Mapping):
            images = {} if image_sizes is None else {"hidden_size_list": image_sizes}
            self.encoder = ObsFeatures(obs_shape, activation=activation, **images)
        elif has_images(obs_shape):
            self.encoder = build_encoder(obs_shape, image_sizes, activation=activation)
        features = self.encoder.output_size if isinstance(obs_shape, Mapping) or self.encoder else prod(obs_shape)
        self.q = ParallelMLP(num, [features, *hidden_sizes, num_actions], activation=activation)

    def forward(self, obs: Any) -> Tensor:
        """Return values [N, B, A] of observations [B, O...], or a dict of them; SchemaError for another shape."""
        if self.encoder is None:
            assert isinstance(self.obs_shape, tuple), "a dict has an encoder"
            check_obs_shape(obs.shape, self.obs_shape)
            features = obs.flatten(1).to(self.q.weights[0].dtype)
        else:
            features = self.encoder(obs)
        values: Tensor = self.q(features)
        return values


@MODEL_REGISTRY.register("discrete_qac")
class DiscreteQAC(nn.Module):
    """Hold an actor, `actor(obs) -> [B, A]` logits, and one critic or two, `critic(obs) -> [N, B, A]`, sharing nothing.

    On vectors both begin with hidden layers of `encoder_hidden_size_list` (None: one, as wide as those that follow), on
    images with a convolutional encoder of these sizes (None: the network of Mnih et al. 2015), one for the actor and
    one for the critics; then come `..._head_layer_num` hidden layers of `..._head_hidden_size`.
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
    ) -> None:
        super().__init__()
        actions = one_action(action_shape, model="discrete_qac")
        shape = obs_shape if isinstance(obs_shape, Mapping) else as_sizes("obs_shape", obs_shape)
        given = encoder_hidden_size_list
        # Of vectors, the first layers are the encoder's in name only: each critic has its own.
        first = [] if has_images(obs_shape) else [critic_head_hidden_size] if given is None else list(given)
        self.critic = ActionValues(
            shape,
            actions,
            num=2 if twin_critic else 1,
            hidden_sizes=[*first, *[critic_head_hidden_size] * critic_head_layer_num],
            image_sizes=given,
            activation=activation,
        )
        sizes = [actor_head_hidden_size] if given is None and not has_images(obs_shape) else given
        encoder = build_encoder(shape, sizes, activation=activation)
        head = DiscreteHead(
            encoder.output_size,
            actions,
            hidden_size=actor_head_hidden_size,
            layer_num=actor_head_layer_num,
            activation=activation,
        )
        self.actor = LinearStack(encoder, head)

    def forward(self, obs: Any) -> Tensor:
        """Return what the actor says."""
        output: Tensor = self.actor(obs)
        return output
