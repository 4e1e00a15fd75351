"""Batch-constrained Q-learning (Fujimoto et al. 2019): only actions like those of the data are taken and followed.

A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum of its rewards. Of continuous actions
there are a variational auto-encoder, whose decoder D gives actions like the data's for latents z, a perturbation xi of
at most phi, and two critics; primes mark target networks. With u = action in [-1, 1], (m, s) = E(obs, u) the encoder's
mean and deviation, z ~ N(m, s), and latents z_k ~ N(0, 1) cut to [-0.5, 0.5], the losses are

    vae_loss    = mean(weight * ((D(obs, z) - u)^2 + 1/2 KL(N(m, s), N(0, 1))))     means over the dimensions
    a_k         = xi'(next_obs, D(next_obs, z_k))                                   k up to `learn.num_actions`
    y           = R + discount * max_k (l * min_i Q_i'(next_obs, a_k) + (1 - l) * max_i Q_i'(next_obs, a_k))
    critic_loss = sum_i mean(weight * (Q_i(obs, u) - y)^2)                          l is `learn.lmbda`
    actor_loss  = -mean(Q_1(obs, xi(obs, D(obs, z_1))))

y is R alone if terminated. The policy takes the best of `model.num_candidates` such actions by Q_1, with latents of
their own in each step.

Discrete actions (Fujimoto et al. 2019b): DQN with a second head G on its encoder, which imitates the data. Actions
whose probability is at least tau = `learn.threshold` of the largest are allowed; the loss is

    a*   = argmax of Q(next_obs, a) over a with G(a|next_obs) / max_b G(b|next_obs) >= tau
    y    = R + discount * Q_target(next_obs, a*)                                    second part only if not terminated
    loss = mean(weight * (Huber(Q(obs, action) - y) - log G(action|obs) + c * mean_a logit_a(obs)^2))

with c = `learn.logit_weight`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch, map_obs, split_mask
from ding_like.model.bcq import cut_latents
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.forward import EpsilonGreedy, ForwardActor, GaussianNoise, NetworkForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offline import FromData
from ding_like.policy.offpolicy import OffPolicyActorCritic, Rows
from ding_like.policy.trained_network import TrainedNetwork
from ding_like.rl_utils.distributions import FORBIDDEN, allowed_logits
from ding_like.rl_utils.exploration import gaussian_noise
from ding_like.rl_utils.td import log_softmax, nstep_td_target
from ding_like.types import Array, Info
from ding_like.utils.bounds import ABOVE_0, FROM_0, FROM_1, SHARE, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("bcq")
class BCQPolicy(FromData, OffPolicyActorCritic):
    """Batch-constrained Q-learning of continuous actions: the best of those that a model of the data generates."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("act"),
        ModelMethod("actor", "obs, action"),
        ModelMethod("critic", "obs, action", ("N B",)),
        ModelMethod("vae", None),
    )
    config: dict[str, Any] = dict(
        type="bcq",
        learn=dict(
            # Learning rate of the critics.
            learning_rate_q=1e-3,
            # Learning rate of the perturbation.
            learning_rate_policy=1e-3,
            # Learning rate of the auto-encoder.
            learning_rate_vae=1e-3,
            # Weight of the smaller of two values of a next action; the larger has the rest.
            lmbda=0.75,
            # Next actions that are drawn for each row.
            num_actions=10,
        ),
        collect=dict(
            # Standard deviation of the exploration noise; 1 is half of the action's range.
            noise_sigma=0.1,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.learning_rate_q": ABOVE_0,
        "learn.learning_rate_policy": ABOVE_0,
        "learn.learning_rate_vae": ABOVE_0,
        "learn.lmbda": SHARE,
        "learn.num_actions": FROM_1,
        "collect.noise_sigma": FROM_0,
    }
    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "no gradient by hand is known for these losses"}
    model_name = "bcq"

    def _init_learn(self) -> None:
        super()._init_learn()
        self._actor = self._trained(self._model.actor, "learning_rate_policy")
        self._critic = self._trained(self._model.critic, "learning_rate_q")
        self._vae = self._trained(self._model.vae, "learning_rate_vae", has_target=False)

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        sigma = self._cfg.collect.noise_sigma if explores else 0.0
        choose = GaussianNoise(self._action_range(), sigma)
        size = getattr(self._model, "noise_size", 0)  # a model of the user's own may do without
        draw_noise = partial(gaussian_noise, size=size, sigma=1.0) if size else None
        return ForwardActor(NetworkForward(self._model.act, None, self._device), choose, draw_noise=draw_noise)

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of auto-encoder, critics and perturbation; priorities are absolute TD errors [B]."""
        rows = self._rows(batch)
        vae_loss = self._imitate(rows)
        info, error = self._learn_values(rows)
        info |= {"vae_loss": vae_loss, "actor_loss": self._improve(rows)}
        info["total_loss"] = info["critic_loss"] + info["actor_loss"] + vae_loss
        return info, self._priority(error)

    def _imitate(self, rows: Rows) -> Tensor:
        """Fill the auto-encoder's gradient; return its loss."""
        vae = self._vae.network
        noise = self._noise.normal(len(rows.action), vae.num_latents, share=self._share)
        found, mean, log_sigma = vae(rows.obs, rows.action, noise)
        divergence = 0.5 * (mean.square() + (2.0 * log_sigma).exp() - 1.0) - log_sigma
        each = (found - rows.action).square().mean(dim=1) + 0.5 * divergence.mean(dim=1)
        return self._vae.backward((rows.weight * each).mean())

    def _learn_values(self, rows: Rows) -> tuple[dict[str, Any], Tensor]:
        """Fill the critics' gradient; return (what to log, the TD errors [N, B])."""
        learn = self._cfg.learn
        with torch.no_grad():
            obs = map_obs(lambda part: part.repeat_interleave(learn.num_actions, dim=0), rows.next_obs)
            action = self._actor.target(obs, self._like_the_data(obs, rows, learn.num_actions))
            values = self._critic.target(obs, action)
            mixed = learn.lmbda * values.amin(dim=0) + (1.0 - learn.lmbda) * values.amax(dim=0)
            next_value = mixed.view(-1, learn.num_actions).amax(dim=1)
            target = nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)
        q = self._critic.network(rows.obs, rows.action)
        error = q - target
        loss = self._critic.backward((rows.weight * error.square()).mean(dim=1).sum())
        return {"critic_loss": loss, "q_value": q.detach(), "target_q_value": target}, error

    def _improve(self, rows: Rows) -> Tensor:
        """Fill the perturbation's gradient; return its loss."""
        with torch.no_grad():
            action = self._like_the_data(rows.obs, rows, 1)
        value = self._critic.network(rows.obs, self._actor.network(rows.obs, action), 1)
        return self._actor.backward(-value.mean())

    def _like_the_data(self, obs: Any, rows: Rows, number: int) -> Tensor:
        """Return actions [B * number, A] of the decoder, for observations of rows, each repeated so often."""
        vae = self._vae.network
        noise = self._noise.normal(len(rows.action), number * vae.num_latents, share=self._share)
        action: Tensor = vae.decode(obs, cut_latents(noise).view(-1, vae.num_latents))
        return action

    def apply(self) -> None:
        """Take one step of all three networks and move both targets."""
        self._end_update()
        for network in self._networks().values():
            network.optimizer.step()
            if network.target is not None:
                network.move_target(self._cfg.learn.target_theta)

    def _networks(self) -> dict[str, TrainedNetwork]:
        return {"actor": self._actor, "critic": self._critic, "vae": self._vae}

    monitored: tuple[str, ...] = (
        "total_loss", "critic_loss", "actor_loss", "vae_loss", "q_value", "target_q_value",
    )  # fmt: skip


@POLICY_REGISTRY.register("discrete_bcq")
class DiscreteBCQPolicy(FromData, DQNPolicy):
    """Batch-constrained deep Q-learning of discrete actions: the best of those that are likely in the data."""

    model_methods: tuple[ModelMethod, ...] = (ModelMethod("q"), ModelMethod("logits"))
    config: dict[str, Any] = dict(
        type="discrete_bcq",
        learn=dict(
            # Smallest probability of an action that may be taken, as a share of the largest.
            threshold=0.3,
            # Weight of the mean square of the logits, which keeps them small.
            logit_weight=0.01,
            loss="huber",
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.threshold": SHARE, "learn.logit_weight": FROM_0}
    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "no gradient by hand is known for this loss"}
    model_name = "discrete_bcq"

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        # Partial and not lambda: a deep copy must run the copied network.
        values = partial(_likely_values, self._model, self._cfg.learn.threshold)
        return ForwardActor(NetworkForward(values, None, self._device), EpsilonGreedy())

    # Any: tensors, in a dict or not; the family's are tensors here.
    def _next_value(self, next_obs: Any, mask: Any) -> Any:
        """Return the value [B] of next observations: that of the best likely action, by the target network."""
        allowed = _is_likely(allowed_logits(self._model.logits(next_obs), mask), self._cfg.learn.threshold)
        return super()._next_value(next_obs, allowed if mask is None else allowed & (mask.reshape(allowed.shape) != 0))

    def _added_loss(self, rows: TransitionBatch, values: Tensor) -> Tensor:
        obs, mask = split_mask(self._obs(rows))
        logits = self._model.logits(obs)
        log_prob = log_softmax(logits, mask).gather(1, rows["action"].long().unsqueeze(1)).squeeze(1)
        each: Tensor = self._cfg.learn.logit_weight * logits.square().mean(dim=1) - log_prob
        self._imitation_loss = each.detach().mean()
        return each

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for rows; priorities are absolute TD errors [B]."""
        info, priority = super().grad(batch)
        return {**info, "imitation_loss": self._imitation_loss}, priority

    monitored: tuple[str, ...] = (*DQNPolicy.monitored, "imitation_loss")


def _is_likely(logits: Tensor, threshold: float) -> Tensor:
    """Return which actions [B, A] have at least a share `threshold` of the largest probability."""
    share = (logits - logits.amax(dim=1, keepdim=True)).exp()
    return torch.ge(share, threshold)


# Any: a model with `q` and `logits`, and observations as it takes them.
def _likely_values(model: Any, threshold: float, obs: Any) -> Tensor:
    """Return values [B, A], of actions that are not likely one that is never the best."""
    return torch.where(_is_likely(model.logits(obs), threshold), model.q(obs), FORBIDDEN)
