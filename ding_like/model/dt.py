"""Decision transformer: a causal transformer over returns to go, observations, actions (Chen et al. 2021, section 3).

A step t is three tokens, each the embedding of its part plus that of t, normalised, so that the sequence is

    R_0 o_0 a_0  R_1 o_1 a_1  ...          what follows o_t is a function of R_0 ... o_t: a_t comes after it

Blocks are pre-norm, as GPT-2's: x + attention(norm(x)), then x + W_2 gelu(W_1 norm(x)) of 4 times the width. Vectors
are observed in units of their mean and deviation over the data set, which `fit` sets and weights hold.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.data.batch import map_obs, num_rows
from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsShape, has_images, lay_out
from ding_like.model.layers import ObsTensor, as_sizes, over_time
from ding_like.utils.registries import MODEL_REGISTRY

_CHUNK = 4096  # observations that `fit` lays out at once
_NO_SPREAD = 1e-6  # deviation of what never changes in the data


class CausalBlock(nn.Module):
    """Attention of each token to itself and those before it, then two linear layers; pre-norm, with residuals."""

    def __init__(self, width: int, num_heads: int, drop_p: float) -> None:
        super().__init__()
        self.num_heads, self.drop_p = num_heads, drop_p
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Sequential(nn.Linear(width, width), nn.Dropout(drop_p))
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(drop_p),
        )

    def forward(self, x: Tensor, kept: slice = slice(None)) -> Tensor:
        """Return [B, K, W] for the `kept` ones of tokens [B, S, W]."""
        heads = self.query_key_value(self.norm(x)).unflatten(2, (3, self.num_heads, -1))  # [B, S, 3, H, W / H]
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        is_seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()[kept]
        drop_p = self.drop_p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query[:, :, kept], key, value, is_seen, drop_p)
        x = x[:, kept] + self.out(mixed.transpose(1, 2).flatten(2))
        return x + cast(Tensor, self.mlp(x))


@MODEL_REGISTRY.register("dt")
class DecisionTransformer(nn.Module):
    """Transformer that gives the action of each step by what came before and the return that is to come.

    `h_dim` is the width of its tokens, `n_blocks` and `n_heads` are those of its attention, `drop_p` the dropout while
    it is trained. Steps of an episode from `max_timestep` on have one embedding. Of continuous actions it gives numbers
    in [-1, 1], else logits. Raises ConfigError for sizes that do not fit.
    """

    feature_mean: Tensor
    feature_std: Tensor
    best_return: Tensor

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int,
        n_blocks: int = 3,
        h_dim: int = 128,
        n_heads: int = 1,
        drop_p: float = 0.1,
        *,
        max_timestep: int = 4096,
        continuous: bool = False,
    ) -> None:
        super().__init__()
        sizes = {"n_blocks": n_blocks, "h_dim": h_dim, "n_heads": n_heads, "max_timestep": max_timestep}
        for name, size in sizes.items():
            as_sizes(name, size)
        if h_dim % n_heads:
            raise ConfigError(f"h_dim {h_dim} does not divide into n_heads {n_heads}: take h_dim a multiple of n_heads")
        if not 0 <= drop_p < 1:
            raise ConfigError(f"drop_p is {drop_p}, expected a share from 0 to below 1")
        (num_actions,) = as_sizes("action_shape", action_shape)
        self.num_actions, self.continuous = num_actions, continuous
        self.layout = lay_out(obs_shape, activation="relu")
        self._is_scaled = not has_images(obs_shape)
        num_features = self.layout.output_size
        self.of_return, self.of_obs = nn.Linear(1, h_dim), nn.Linear(num_features, h_dim)
        self.of_action = nn.Linear(num_actions, h_dim)
        self.of_step = nn.Embedding(max_timestep, h_dim)
        self.tokens = nn.Sequential(nn.LayerNorm(h_dim), nn.Dropout(drop_p))
        self.blocks = nn.ModuleList(CausalBlock(h_dim, n_heads, drop_p) for _ in range(n_blocks))
        self.head = nn.Sequential(nn.LayerNorm(h_dim), nn.Linear(h_dim, num_actions))
        # Begun as GPT-2's, the step's embedding is small beside those it is added to, which begin as linear layers do.
        for module in (*self.blocks.modules(), *self.head, self.of_step):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        self.register_buffer("feature_mean", torch.zeros(num_features))
        self.register_buffer("feature_std", torch.ones(num_features))
        self.register_buffer("best_return", torch.zeros(()))

    def fit(self, obs: ObsTensor, best_return: float) -> None:
        """Take mean and deviation of the observations [N, O...] of a data set, and the highest return in it."""
        self.best_return.fill_(best_return)
        if not self._is_scaled:
            return
        device, length = self.feature_mean.device, num_rows(obs)
        total = torch.zeros(2, len(self.feature_mean), dtype=torch.float64, device=device)
        for rows in torch.split(torch.arange(length), _CHUNK):
            features = self.layout(map_obs(partial(_rows_on, rows=rows, device=device), obs)).double()
            total += torch.stack([features.sum(dim=0), features.square().sum(dim=0)])
        mean, square = total / length
        std = (square - mean.square()).clamp_(min=0.0).sqrt_()
        self.feature_mean.copy_(mean)
        self.feature_std.copy_(torch.where(std > _NO_SPREAD, std, 1.0))

    def actor(self, obs: ObsTensor, action: Tensor, return_to_go: Tensor, step: Tensor) -> Tensor:
        """Return logits, or actions in [-1, 1], [B, T, A] for each step of sequences.

        Observations are [B, T, O...], actions numbers [B, T], or [B, T, A] in [-1, 1]; returns to go [B, T] are those
        from a step on, scaled, and `step` [B, T] counts from the episode's begin. What is given of a step and later
        does not change what is returned for those before it, nor an action what is returned for its own.
        """
        features = (over_time(self.layout, obs) - self.feature_mean) / self.feature_std
        taken = action if self.continuous else F.one_hot(action.long(), self.num_actions).to(features.dtype)
        when = self.of_step(step.clamp(max=self.of_step.num_embeddings - 1))
        parts = (self.of_return(return_to_go.unsqueeze(2)), self.of_obs(features), self.of_action(taken))
        tokens = torch.stack([part + when for part in parts], dim=2).flatten(1, 2)  # [B, 3 T, W]
        tokens = self.tokens(tokens)
        *before, last = self.blocks
        for block in before:
            tokens = block(tokens)
        output: Tensor = self.head(last(tokens, kept=slice(1, None, 3)))  # what is behind the observations
        return output.tanh() if self.continuous else output


def _rows_on(part: Tensor, *, rows: Tensor, device: torch.device) -> Tensor:
    """Return rows of an observation's part on a device."""
    return part[rows].to(device)
