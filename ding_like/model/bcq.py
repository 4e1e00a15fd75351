"""Networks of batch-constrained Q-learning: what imitates the data, and what chooses near it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ding_like.data.batch import map_obs, num_rows
from ding_like.model.encoder import ObsShape, lay_out
from ding_like.model.layers import Activation, LinearStack, ObsTensor, as_sizes, build_mlp, check_noise
from ding_like.model.q_networks import QNetwork, one_action
from ding_like.model.qac import Critic
from ding_like.utils.registries import MODEL_REGISTRY

_LARGEST_LATENT = 0.5
_MIN_LOG_SIGMA, _MAX_LOG_SIGMA = -4.0, 15.0


def cut_latents(noise: Tensor) -> Tensor:
    """Return standard normal numbers as the latents that a `VAE` is asked for: within 0.5 of 0, in place."""
    return noise.clamp_(-_LARGEST_LATENT, _LARGEST_LATENT)


def _mlp(inputs: int, sizes: Sequence[int], outputs: int, activation: Activation) -> LinearStack:
    return LinearStack(*build_mlp(inputs, sizes, activation=activation), nn.Linear(sizes[-1], outputs))


class Perturbation(nn.Module):
    """Small change of an action, at most `phi` of half of its range, for the better."""

    def __init__(
        self, obs_shape: ObsShape, num_actions: int, sizes: Sequence[int], *, phi: float, activation: Activation
    ) -> None:
        super().__init__()
        self.phi = phi
        self.encoder = lay_out(obs_shape, activation=activation)
        self.main = _mlp(self.encoder.output_size + num_actions, sizes, num_actions, activation)

    def forward(self, obs: ObsTensor, action: Tensor) -> Tensor:
        """Return actions [B, A] in [-1, 1] near those given."""
        change = self.main(torch.cat([self.encoder(obs), action], dim=1)).tanh()
        return cast(Tensor, (action + self.phi * change).clamp(-1.0, 1.0))


class VAE(nn.Module):
    """Variational auto-encoder of the actions [B, A] of observations, with latents [B, Z], Z = 2 A."""

    def __init__(self, obs_shape: ObsShape, num_actions: int, sizes: Sequence[int], *, activation: Activation) -> None:
        super().__init__()
        self.num_latents = 2 * num_actions
        self.features = lay_out(obs_shape, activation=activation)
        width = self.features.output_size
        self.encoder = _mlp(width + num_actions, sizes, 2 * self.num_latents, activation)
        self.decoder = _mlp(width + self.num_latents, sizes, num_actions, activation)

    def encode(self, obs: ObsTensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log standard deviation of the latents, [B, Z] each."""
        mean, log_sigma = self.encoder(torch.cat([self.features(obs), action], dim=1)).chunk(2, dim=1)
        return mean, log_sigma.clamp(_MIN_LOG_SIGMA, _MAX_LOG_SIGMA)

    def decode(self, obs: ObsTensor, latent: Tensor) -> Tensor:
        """Return actions [B, A] in [-1, 1]."""
        return cast(Tensor, self.decoder(torch.cat([self.features(obs), latent], dim=1)).tanh())

    def forward(self, obs: ObsTensor, action: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (actions again, from latents drawn with `noise` [B, Z]; mean and log deviation of the latents)."""
        mean, log_sigma = self.encode(obs, action)
        return self.decode(obs, mean + log_sigma.exp() * noise), mean, log_sigma


@MODEL_REGISTRY.register("bcq")
class BCQ(nn.Module):
    """VAE of the data's actions, perturbation, `actor(obs, action) -> [B, A]`, and two critics, which share no weights.

    `act` chooses among the actions of `num_candidates` latents, for which it is given `noise_size` standard normal
    numbers. Sizes are widths of hidden layers; images are encoded for each part by the network of Mnih et al. 2015.
    Raises ConfigError for sizes that do not fit.
    """

    latents: Tensor

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        *,
        actor_head_hidden_size: int | Sequence[int] = (400, 300),
        critic_head_hidden_size: int | Sequence[int] = (400, 300),
        vae_hidden_dims: int | Sequence[int] = (750, 750),
        phi: float = 0.05,
        num_candidates: int = 100,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        num_actions = one_action(action_shape, model="bcq")
        as_sizes("num_candidates", num_candidates)
        sizes = as_sizes("actor_head_hidden_size", actor_head_hidden_size)
        self.actor = Perturbation(obs_shape, num_actions, sizes, phi=phi, activation=activation)
        self.critic = Critic(
            obs_shape,
            num=2,
            action_size=num_actions,
            hidden_sizes=as_sizes("critic_head_hidden_size", critic_head_hidden_size),
            image_sizes=None,
            activation=activation,
        )
        sizes = as_sizes("vae_hidden_dims", vae_hidden_dims)
        self.vae = VAE(obs_shape, num_actions, sizes, activation=activation)
        self.register_buffer("latents", cut_latents(torch.randn(num_candidates, self.vae.num_latents)))
        self.noise_size = self.latents.numel()

    def act(self, obs: ObsTensor, noise: Tensor | None = None) -> Tensor:
        """Return the candidates [B, A] that the first critic values most.

        Noise is [P], or [B, P] for rows of their own; without, latents are those drawn with the weights, so that the
        choice is a function of the observation.
        """
        number, num_latents = self.latents.shape
        batch = num_rows(obs)
        check_noise(noise, batch, self.noise_size)
        own = self.latents.flatten() if noise is None else cut_latents(noise.clone())
        latents = own.expand(batch, -1).reshape(-1, num_latents)
        repeated = map_obs(lambda part: part.repeat_interleave(number, dim=0), obs)
        action = self.actor(repeated, self.vae.decode(repeated, latents))
        best = self.critic(repeated, action, 1).view(-1, number).argmax(dim=1)
        candidates = action.view(-1, number, action.shape[1])
        return cast(Tensor, candidates[torch.arange(batch, device=best.device), best])

    forward = act


@MODEL_REGISTRY.register("discrete_bcq")
class DiscreteBCQ(nn.Module):
    """Two networks of DQN's form, of the arguments of `DQN`: values, and logits of the data's actions.

    They share no weights: values grow to many times the size of logits, and would shape a shared encoder alone.
    """

    def __init__(self, obs_shape: ObsShape, action_shape: int | Sequence[int], *args: Any, **settings: Any) -> None:
        super().__init__()
        one_action(action_shape, model="discrete_bcq")
        self.values = QNetwork(obs_shape, action_shape, *args, **settings)
        self.imitator = QNetwork(obs_shape, action_shape, *args, **{**settings, "dueling": False})

    def q(self, x: ObsTensor) -> Tensor:
        """Return values [B, A] of observations [B, O...]."""
        return self.values.points(x)

    def logits(self, x: ObsTensor) -> Tensor:
        """Return logits [B, A] of observations [B, O...]."""
        return self.imitator.points(x)

    def forward(self, x: ObsTensor) -> tuple[Tensor, Tensor]:
        """Return values and logits."""
        return self.q(x), self.logits(x)
