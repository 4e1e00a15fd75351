"""Phasic policy gradients (Cobbe et al. 2021).

Actor and critic are networks of their own, so that neither loss disturbs the other, and what the critic learns is
brought into the actor in a phase of its own. Batches are trained on as `policy/ppo.py` does, with a value network of
its own; after every `aux_freq` batches an auxiliary phase goes over all their rows again, `aux_train_epoch` times. With
pi_old the policy at its beginning, V' an auxiliary value on the actor's encoder and R the critic's target when acting:

    loss = mean((V' - R)^2) / 2 + aux_bc_weight * mean(KL(pi_old(.|obs), pi(.|obs))) + mean((V - R)^2) / 2

The KL keeps the actor what it was while its encoder learns to tell values apart. The rows wait in the policy, and in
its checkpoints.

`PPGOffPolicy` learns from rows of a replay buffer: a batch is one minibatch that was drawn from it, learned from as
`PPOOffPolicy` does, and an auxiliary phase goes over the minibatches since the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from ding_like.data.batch import TransitionBatch, columns_to_obs, split_mask
from ding_like.policy.base import PER_COLLECT
from ding_like.policy.forward import NetworkForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.onpolicy import OnPolicyActorCritic
from ding_like.policy.ppo import PPOOffPolicy, PPOPolicy
from ding_like.policy.sharing import Moving, Pending
from ding_like.rl_utils.distributions import allowed_logits
from ding_like.types import Array, Info, State
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY

# A phase's rows, one batch after another.
Kept = tuple[TransitionBatch, ...]


@POLICY_REGISTRY.register("ppg")
class PPGPolicy(PPOPolicy):
    """PPO with phases in which what the critic learned is brought into the actor.

    The model is a 'ppg', or any with its methods `actor`, `critic`, `actor_critic` and `actor_and_aux`.
    """

    model_methods: tuple[ModelMethod, ...] = (
        *PPOPolicy.model_methods,
        ModelMethod("actor_and_aux", gives=("B P", "B")),
    )
    config: dict[str, Any] = dict(
        type="ppg",
        learn=dict(
            epoch_per_collect=1,
            # Batches between two auxiliary phases, N_pi in the paper.
            aux_freq=5,
            # Epochs of an auxiliary phase, E_aux in the paper.
            aux_train_epoch=6,
            # Weight of the KL that keeps the policy as it was ("behavioural cloning").
            aux_bc_weight=1.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.aux_freq": FROM_1,
        "learn.aux_train_epoch": PER_COLLECT,
        "learn.aux_bc_weight": FROM_0,
    }
    # Keys of DI-engine's configs.
    without_effect: ClassVar[Mapping[str, str]] = {
        "learn.actor_epoch_per_collect": "learn.epoch_per_collect counts the epochs of both networks",
        "learn.critic_epoch_per_collect": "learn.epoch_per_collect counts the epochs of both networks",
        "learn.aux_batch_size": "minibatches of both phases have learn.batch_size rows",
    }
    action_spaces = OnPolicyActorCritic.action_spaces
    _loss_columns = (*PPOPolicy._loss_columns, "old_output")

    model_name = "ppg"

    def _init_learn(self) -> None:
        super()._init_learn()
        self._kept: Pending[Kept] = Pending((), _as_tensors, _as_rows)  # what waits for the auxiliary phase

    @cached_property
    def _actor(self) -> NetworkForward:
        return self._forward("actor")

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield those of PPO and then, after every `aux_freq` batches, those of the auxiliary phase."""
        self._kept.next = (*self._kept.now, _worth_keeping(batch))
        yield from super().minibatches(batch, rng)
        learn = self._cfg.learn
        if len(self._kept.now) < learn.aux_freq:
            return
        rows = TransitionBatch.concat([self._with_old_output(kept) for kept in self._kept.now])
        self._kept.next = ()
        for _ in range(learn.aux_train_epoch):
            yield from self._shuffled(rows, learn.batch_size, rng)

    def _with_old_output(self, rows: TransitionBatch) -> TransitionBatch:
        """Return rows with what the actor says of them now."""
        return rows.with_columns(old_output=self._actor.array(split_mask(columns_to_obs("obs", rows.columns))[0]))

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of PPO's loss, or of the auxiliary phase's, for one minibatch."""
        if "old_output" in batch.columns:
            return self._aux_grad(batch.to(self._device)), None
        self._params.zero_grad()  # PPO's loss knows nothing of the auxiliary head
        return super().grad(batch)

    def _aux_grad(self, rows: TransitionBatch) -> Info:
        self._params.follow()
        obs, mask = split_mask(self._obs(rows))
        output, aux_value = self._model.actor_and_aux(obs)
        return_ = self._value_targets(rows)["return_"]
        aux_value_loss = 0.5 * F.mse_loss(aux_value, return_)
        value_loss = 0.5 * F.mse_loss(self._model.critic(obs), return_)
        kl = self._family.kl(allowed_logits(rows["old_output"], mask), allowed_logits(output, mask)).mean()
        loss = self._params.backward(aux_value_loss + self._cfg.learn.aux_bc_weight * kl + value_loss)
        return {
            "cur_lr": self._now(self._learning_rate),
            "aux_total_loss": loss,
            "aux_value_loss": aux_value_loss.detach(),
            "aux_kl": kl.detach(),
            "value_loss": value_loss.detach(),
        }

    monitored: tuple[str, ...] = (*PPOPolicy.monitored, "aux_total_loss", "aux_value_loss", "aux_kl")

    def _moving(self) -> dict[str, Moving]:
        return {**super()._moving(), "kept": self._kept}


@POLICY_REGISTRY.register("ppg_offpolicy")
class PPGOffPolicy(PPGPolicy, PPOOffPolicy):
    """PPG on rows of a replay buffer, one update for each batch and an auxiliary phase after every `aux_freq`."""

    config: dict[str, Any] = dict(type="ppg_offpolicy")


def _worth_keeping(batch: TransitionBatch) -> TransitionBatch:
    """Return a copy of the columns that an auxiliary phase needs."""
    wanted = [name for name in batch.columns if name in ("obs", "value", "return_") or name.startswith("obs/")]
    return TransitionBatch({name: np.array(batch[name]) for name in wanted})


def _as_tensors(kept: Kept) -> State:
    """Return rows as nested dicts of tensors, by their batch's number and column."""
    return {
        str(i): {name: torch.from_numpy(np.asarray(column)) for name, column in batch.columns.items()}
        for i, batch in enumerate(kept)
    }


def _as_rows(state: State) -> Kept:
    """Take over what `_as_tensors` returned."""
    batches = (state[str(i)] for i in range(len(state)))
    return tuple(
        TransitionBatch({name: torch.as_tensor(column).cpu().numpy().copy() for name, column in batch.items()})
        for batch in batches
    )
