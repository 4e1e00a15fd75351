"""Proximal policy optimisation (Schulman et al. 2017).

A rollout of the current policy is used for several epochs of minibatches, and a clip keeps each from moving the policy
far from the one that acted. With r = exp(log_prob - log_prob when acting), advantages A (generalised, Schulman et al.
2016), values V and R = A + V when acting:

    loss = mean(-min(r A, clip(r, 1 - c, 1 + c) A)) + value_weight * mean((V - R)^2) - entropy_weight * mean(entropy)
           + kl_beta * mean(r - 1 - log r)

The last term, off by default, estimates KL(policy when acting, policy): section 4 of the paper, with a fixed weight.

`PPOOffPolicy` learns from rows of a replay buffer: the policy that acted may be some updates old. Rows keep the log
probabilities, values and advantages of that time, so the loss holds as it is; the clip bounds what old rows can do. A
small buffer keeps them recent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.model.numpy_networks import NumpyGrad, can_differentiate
from ding_like.policy.base import PER_COLLECT
from ding_like.policy.onpolicy import OnPolicyActorCritic
from ding_like.policy.sharing import Moving, Pending
from ding_like.rl_utils.distributions import mask_logits
from ding_like.rl_utils.policy_gradient import (
    RunningStd,
    normalise,
    ppo_policy_loss,
    ppo_policy_loss_by_hand,
    ppo_value_loss,
    ppo_value_loss_by_hand,
)
from ding_like.types import Array, Info, Obs, State
from ding_like.utils.bounds import ABOVE_0, FROM_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("ppo")
class PPOPolicy(OnPolicyActorCritic):
    """Clipped policy gradients, for discrete or continuous actions."""

    config: dict[str, Any] = dict(
        type="ppo",
        # Compute advantages again before each epoch, with the critic as it is by then.
        recompute_adv=False,
        learn=dict(
            # Epochs: how often the updates pass over the rows of a collection.
            epoch_per_collect=10,
            batch_size=64,
            learning_rate=3e-4,
            # How far the probability of an action may move in the updates of a batch, as a ratio from 1.
            clip_ratio=0.2,
            # Ratio at which a bad action stops counting more (dual clip, Ye et al. 2020); None: never.
            dual_clip=None,
            # Weight of the KL divergence of the policy from the one that acted, as a penalty beside the clip.
            kl_beta=0.0,
            # How far a value may move from the old one, in units of reward; None: no limit.
            value_clip=None,
            # Normalise advantages to mean 0 and deviation 1: True in each mini-batch, "batch" once for all, False not.
            adv_norm=True,
            # Let the critic learn returns divided by their running standard deviation.
            value_norm=False,
            # Stop the epochs of a batch once the policy has moved this far, by the mean KL of an epoch; None: never.
            target_kl=None,
            # Initialise the networks with orthogonal weights.
            ppo_param_init=True,
            # How gradients are computed: "autograd", or "auto": by hand in numpy where the model is a small MLP.
            backend="auto",
            schedule=dict(
                # Clip ratio at the end of the schedule; None: it stays.
                clip_end=None,
            ),
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.epoch_per_collect": PER_COLLECT,
        "learn.clip_ratio": ABOVE_0,
        "learn.dual_clip": Bounds(1, is_above_low=True),
        "learn.kl_beta": FROM_0,
        "learn.value_clip": ABOVE_0,
        "learn.target_kl": ABOVE_0,
        "learn.schedule.clip_end": FROM_0,
    }
    config_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "learn.backend": ("auto", "autograd"),
        "learn.adv_norm": (True, False, "batch"),
    }
    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "learn.schedule.env_steps": (None, ("learn.schedule.lr_end", "learn.schedule.clip_end")),
    }
    action_spaces: tuple[str, ...] | None = ("Discrete", "MultiDiscrete", "MultiBinary", "Box", "HybridSpace")
    config_types = {"learn.adv_norm": (bool, str)}

    def _build_model(self) -> nn.Module:
        model, default = self._cfg.model, self.default_model()[0]
        if model.get("type", default) == default:
            model.setdefault("orthogonal_init", self._cfg.learn.ppo_param_init)
        return super()._build_model()

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        self._clip_ratio = self._schedule(learn.clip_ratio, learn.schedule.clip_end)
        # Of the update under way; read through a vector, which several learners average.
        self._approx_kl = torch.zeros(1, dtype=torch.float64, device=self._device)
        by_hand = learn.backend == "auto" and can_differentiate(self._model)
        self._by_hand = NumpyGrad(self._model, self._params) if by_hand else None
        self._learns_by_hand = by_hand

    @cached_property
    def _returns(self) -> Pending[RunningStd]:
        """Return what the critic counts in with learn.value_norm."""
        return Pending(RunningStd(), RunningStd.state_dict, RunningStd.from_state)

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield shuffled minibatches, epoch after epoch, until the policy has moved by `target_kl`.

        The KL is read once per epoch: it is the only tensor that training waits for.
        """
        learn = self._cfg.learn
        rows = self._learned_rows(batch)
        self._begin_train(rows, num_rows=len(batch))
        for epoch in range(learn.epoch_per_collect):
            if epoch and self._cfg.recompute_adv:
                batch = self.with_returns(batch)
                rows = self._learned_rows(batch)
            if learn.adv_norm == "batch" and (not epoch or self._cfg.recompute_adv):
                rows = rows.with_columns(advantage=normalise(rows["advantage"]))
            epoch_kl: list[torch.Tensor] = []
            for minibatch in self._shuffled(rows, learn.batch_size, rng):
                yield minibatch
                if learn.target_kl is not None:
                    epoch_kl.append(self._approx_kl.clone())
            if learn.target_kl is not None and float(sum(epoch_kl) / len(epoch_kl)) > learn.target_kl:
                return

    def _begin_train(self, batch: TransitionBatch, *, num_rows: float) -> None:
        super()._begin_train(batch, num_rows=num_rows)
        if self._cfg.learn.value_norm:
            self._returns.next = copy.copy(self._returns.now)
            self._returns.next.update(batch["return_"])

    def _values(self, obs: Obs) -> Array:
        values = super()._values(obs)
        return values * np.float32(self._returns.now.std) if self._cfg.learn.value_norm else values

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for one minibatch."""
        if self._by_hand is not None and isinstance(batch["advantage"], np.ndarray):
            return self._grad_by_hand(self._by_hand, batch), None
        learn, rows = self._cfg.learn, batch.to(self._device)
        log_prob, entropy, value = self._evaluate(rows)
        clip = self._now(self._clip_ratio)
        policy = ppo_policy_loss(
            log_prob,
            rows["log_prob"],
            self._advantage(rows),
            clip_ratio=clip,
            dual_clip=learn.dual_clip,
            kl_beta=learn.kl_beta,
        )
        value_loss = ppo_value_loss(value, **self._value_targets(rows))
        entropy = entropy.mean()
        # One operation a weight, where `weight * loss` and a sum are two each way.
        total = policy.loss.add(value_loss, alpha=learn.value_weight).sub(entropy, alpha=learn.entropy_weight)
        loss = self._params.backward(total)
        values = loss, policy.loss.detach(), value_loss.detach(), entropy.detach()
        return self._info(*values, approx_kl=policy.approx_kl, clip_fraction=policy.clip_fraction), None

    def _grad_by_hand(self, model: NumpyGrad, rows: TransitionBatch) -> dict[str, Any]:
        """Do what `grad` does, in numpy: for small networks several times faster."""
        learn, size = self._cfg.learn, len(rows)
        obs, mask = split_mask(self._obs(rows))
        output = model.forward(obs)
        logit, value = output[:, :-1], output[:, -1]
        if mask is not None:
            logit = mask_logits(logit, mask)
        with np.errstate(all="ignore"):  # numbers that are not finite are the optimizer's to find
            actor = self._family.by_hand(logit, rows[self._family.column])
            advantage, clip = self._advantage(rows), self._now(self._clip_ratio)
            policy, approx_kl, clip_fraction = ppo_policy_loss_by_hand(
                actor.log_prob,
                rows["log_prob"],
                advantage,
                clip_ratio=clip,
                dual_clip=learn.dual_clip,
                kl_beta=learn.kl_beta,
            )
            critic = ppo_value_loss_by_hand(value, **self._value_targets(rows))
            entropy = float(np.add.reduce(actor.entropy)) / size
            grad = np.empty_like(output)
            grad[:, :-1] = actor.backward(policy.grad, -learn.entropy_weight / size)
            grad[:, -1] = learn.value_weight * critic.grad
        model.backward(grad)
        loss = policy.loss + learn.value_weight * critic.loss - learn.entropy_weight * entropy
        self._params.loss.fill_(loss)
        values = loss, policy.loss, critic.loss, entropy
        return self._info(*values, approx_kl=approx_kl, clip_fraction=clip_fraction)

    def _value_targets(self, rows: TransitionBatch) -> dict[str, Any]:
        """Return what the value loss compares the critic with, in the unit that the critic counts in."""
        scale = self._returns.next.std if self._cfg.learn.value_norm else 1.0
        clip = self._cfg.learn.value_clip
        return_, old_value = rows["return_"], rows["value"]
        if scale != 1.0:
            return_, old_value, clip = return_ / scale, old_value / scale, None if clip is None else clip / scale
        return {"return_": return_, "old_value": old_value, "value_clip": clip}

    def _info(self, *values: Any, approx_kl: Any, **more: Any) -> dict[str, Any]:
        """Return what is logged of a minibatch; numbers, or tensors that may still be computed."""
        if self._cfg.learn.target_kl is not None:
            self._approx_kl[0] = approx_kl
        rates = {"cur_lr": self._now(self._learning_rate), "clip_ratio": self._now(self._clip_ratio)}
        losses = dict(zip(("total_loss", "policy_loss", "value_loss", "entropy"), values, strict=True))
        return {**losses, "approx_kl": approx_kl, **more, **rates}

    def grad_vectors(self) -> list[torch.Tensor]:
        """Return the live vectors that `grad` fills; with learn.target_kl, the last is the approximate KL [1]."""
        return [*super().grad_vectors(), *([] if self._cfg.learn.target_kl is None else [self._approx_kl])]

    monitored: tuple[str, ...] = (*OnPolicyActorCritic.monitored, "approx_kl", "clip_fraction", "clip_ratio")

    def _state_dict_act(self) -> State:
        return {**super()._state_dict_act(), "returns": self._returns.state}

    def _load_state_dict_act(self, state: State) -> None:
        super()._load_state_dict_act(state)
        # Weights alone, as another program may have saved them, come without.
        if "returns" in state:
            self._returns.load(state["returns"])

    def _moving(self) -> dict[str, Moving]:
        return {**super()._moving(), "returns": self._returns}


@POLICY_REGISTRY.register("ppo_offpolicy")
class PPOOffPolicy(PPOPolicy):
    """PPO on rows of a replay buffer, one update for each batch."""

    config: dict[str, Any] = dict(
        type="ppo_offpolicy",
        on_policy=False,
        learn=dict(update_per_collect=5, batch_size=64, epoch_per_collect=1),
        collect=dict(n_sample=64),
        other=dict(replay_buffer=dict(replay_buffer_size=1000)),
    )
    action_spaces = OnPolicyActorCritic.action_spaces

    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        path: (only, "where rows come from a buffer, use learn.update_per_collect, or policy 'ppo'")
        for path, only in (("recompute_adv", False), ("learn.target_kl", None), ("learn.epoch_per_collect", 1))
    }

    def why_no_reward_model(self) -> str | None:
        """Return why rows cannot be given other rewards: they are no whole rollout."""
        return "rows keep advantages of the rewards that they came with: choose policy 'ppo'"

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield the batch itself."""
        yield self._one_update(batch)
