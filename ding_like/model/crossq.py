"""Actor and critics with batch renormalisation (Ioffe 2017), of CrossQ (Bhatt et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsShape, has_images, lay_out
from ding_like.model.layers import Activation, LinearStack, ObsTensor, as_sizes, build_activation
from ding_like.model.qac import QAC
from ding_like.utils.registries import MODEL_REGISTRY

_MAX_SCALE, _MAX_SHIFT = 3.0, 5.0  # r_max and d_max of Ioffe 2017, section 4


class BatchRenorm(nn.Module):
    """Normalisation of features [B, F] by running statistics, which batches move; then a scale and a shift.

    It uses the running statistics, `running` [2, F], mean and variance, except inside `batch_statistics`. There it uses
    those of the batch, keeps them in `batch` [2, F], and, where that asks for it, corrects towards the running ones:

        y = (x - mean_batch) / sigma_batch * r + d
        r = clip(sigma_batch / sigma, 1 / 3, 3)     d = clip((mean_batch - mean) / sigma, -5, 5)

    without a gradient through r and d. Running statistics change by `follow` alone, so that a gradient that is not
    applied leaves no trace. Source: Ioffe 2017, algorithm 1.
    """

    running: Tensor
    batch: Tensor

    def __init__(self, size: int, *, eps: float = 1e-3) -> None:
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        start = torch.stack([torch.zeros(size), torch.ones(size)])
        self.register_buffer("running", start)
        self.register_buffer("batch", start.clone(), persistent=False)
        self.uses_batch = False
        self.corrects = False

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, F] normalised."""
        mean, variance = self.running
        if not self.uses_batch:
            return F.batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)
        weight, bias = self.weight, self.bias
        if self.corrects:
            with torch.no_grad():
                batch_variance, batch_mean = torch.var_mean(x, dim=0, correction=0)
                sigma = (variance + self.eps).sqrt()
                r = ((batch_variance + self.eps).sqrt() / sigma).clamp_(1.0 / _MAX_SCALE, _MAX_SCALE)
                d = ((batch_mean - mean) / sigma).clamp_(-_MAX_SHIFT, _MAX_SHIFT)
            weight, bias = weight * r, bias + weight * d
        # With a momentum of 1, what torch calls running statistics are those of the batch.
        of_batch = self.batch[0], self.batch[1]
        return F.batch_norm(x, *of_batch, weight, bias, training=True, momentum=1.0, eps=self.eps)

    def follow(self, share: float) -> None:
        """Move the running statistics a share of the way to those of the last batch."""
        self.running.lerp_(self.batch, share)


def renorms_of(module: nn.Module) -> list[BatchRenorm]:
    """Return the normalising layers of a module."""
    return [layer for layer in module.modules() if isinstance(layer, BatchRenorm)]


@contextmanager
def batch_statistics(layers: Sequence[BatchRenorm], *, corrects: bool) -> Iterator[None]:
    """Let layers use the statistics of batches, corrected towards the running ones or not."""
    for layer in layers:
        layer.uses_batch, layer.corrects = True, corrects
    try:
        yield
    finally:
        for layer in layers:
            layer.uses_batch = False


class RenormCritic(nn.Module):
    """Networks of values of an action that goes in, `num` of them side by side, on vectors."""

    def __init__(self, obs_shape: ObsShape, sizes: Sequence[int], *, num: int, activation: Activation) -> None:
        super().__init__()
        self.encoder = lay_out(obs_shape, activation=activation)
        self.q = nn.ModuleList(_renormed(sizes, activation) for _ in range(num))

    def forward(self, obs: ObsTensor, action: Tensor) -> Tensor:
        """Return values [N, B] of observations [B, O...] and actions [B, A] in [-1, 1]."""
        x = torch.cat([self.encoder(obs), action], dim=1)
        return torch.stack([network(x).squeeze(1) for network in self.q])


@MODEL_REGISTRY.register("crossq")
class CrossQ(QAC):
    """Actor, `actor(obs) -> [B, 2 A]`, and critics, `critic(obs, action) -> [N, B]`, with batch renormalisation.

    Mean and log standard deviation of a Gaussian are what the actor gives. The input and what follows each activation
    are normalised. Both have 1 + `..._head_layer_num` hidden layers of `..._head_hidden_size`; the paper's critics are
    2048 wide, which is many times the work. Observations are vectors, or dicts of them. Raises ConfigError for others,
    and for sizes that do not fit.
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
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if action_space != "reparameterization":
            raise ConfigError(f"action_space is {action_space!r}; the 'crossq' model has 'reparameterization' alone")
        if has_images(obs_shape):
            raise ConfigError(f"obs_shape is {obs_shape}, but the 'crossq' model needs vectors; use policy 'sac'")
        (actions,) = as_sizes("action_shape", action_shape)
        encoder = lay_out(obs_shape, activation=activation)
        size = encoder.output_size
        hidden = as_sizes("actor_head_hidden_size", actor_head_hidden_size) * (1 + actor_head_layer_num)
        self.actor = LinearStack(encoder, *_renormed([size, *hidden, 2 * actions], activation))
        hidden = as_sizes("critic_head_hidden_size", critic_head_hidden_size) * (1 + critic_head_layer_num)
        sizes = [size + actions, *hidden, 1]
        self.critic = RenormCritic(obs_shape, sizes, num=2 if twin_critic else 1, activation=activation)


def _renormed(sizes: Sequence[int], activation: Activation) -> LinearStack:
    """Return linear layers of these widths, the input and what each activation gives normalised."""
    layers: list[nn.Module] = [BatchRenorm(sizes[0])]
    for fan_in, fan_out in pairwise(sizes[:-1]):
        layers += [nn.Linear(fan_in, fan_out), build_activation(activation), BatchRenorm(fan_out)]
    return LinearStack(*layers, nn.Linear(sizes[-2], sizes[-1]))
