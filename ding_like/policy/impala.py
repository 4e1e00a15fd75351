"""IMPALA (Espeholt et al. 2018): an actor and a critic learn from sequences that an older policy has made.

Rows are sequences of `unroll_len` steps from a replay buffer, with the log probabilities when acting. V-trace
(`rl_utils/policy_gradient.py`) corrects for what the policy has moved since. With values V, targets v of the policy as
it is now, and rho_t = min(rho_pg_clip_ratio, pi / mu), in means over the steps of a batch (section 4.2):

    policy loss = mean(-rho_t (r_t + gamma v_(t+1) - V(x_t)) log pi(a_t|x_t))
    value loss  = mean(0.5 (v_t - V(x_t))^2)
    loss        = policy loss + value_weight * value loss - entropy_weight * mean(entropy)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ding_like.config import NoEffect
from ding_like.data.batch import TransitionBatch, map_obs, split_mask
from ding_like.model.layers import as_sizes
from ding_like.policy.base import Policy
from ding_like.policy.onpolicy import OnPolicyActorCritic
from ding_like.policy.rows import SequenceShape, SequencesWithLogProb
from ding_like.policy.sharing import Share
from ding_like.rl_utils.distributions import allowed_logits
from ding_like.rl_utils.policy_gradient import vtrace
from ding_like.types import Array, Config, Info
from ding_like.utils.bounds import ABOVE_0, SHARE, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("impala")
class IMPALAPolicy(OnPolicyActorCritic):
    """Actor and critic that learn from sequences of a replay buffer, one update for each batch."""

    config: dict[str, Any] = dict(
        type="impala",
        on_policy=False,
        # Env steps of a row (a sequence), over which V-trace runs.
        unroll_len=32,
        learn=dict(
            # DI-engine's place for policy.discount_factor; None: the value there.
            discount_factor=None,
            update_per_collect=4,
            # Sequences of a mini-batch, from which one update is computed.
            batch_size=16,
            learning_rate=5e-4,
            entropy_weight=1e-4,
            # Largest norm of the gradient, DI-engine's name for learn.grad_clip_norm; None: learn.grad_clip_value.
            clip_value=None,
            # A key of DI-engine's configs: see `without_effect`.
            optim=None,
            # Lambda of V-trace: 1 is the paper's, 0 one-step targets.
            lambda_=0.95,
            # Largest importance weight of the error of a step (rho of V-trace).
            rho_clip_ratio=1.0,
            # Largest importance weight of the errors of later steps (c of V-trace).
            c_clip_ratio=1.0,
            # Largest importance weight of the policy gradient of a step.
            rho_pg_clip_ratio=1.0,
        ),
        collect=dict(
            # Sequences that are collected before the next updates; n_episode replaces it.
            n_sample=16,
            # A run makes it the copy of policy.unroll_len that it is in DI-engine's configs.
            unroll_len=None,
        ),
        other=dict(replay_buffer=dict(replay_buffer_size=1000)),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.discount_factor": SHARE,
        "learn.clip_value": ABOVE_0,
        "learn.lambda_": SHARE,
        "learn.rho_clip_ratio": ABOVE_0,
        "learn.c_clip_ratio": ABOVE_0,
        "learn.rho_pg_clip_ratio": ABOVE_0,
    }
    config_types = {"learn.optim": (str,)}
    config_alternatives = (
        ("collect.n_sample", "collect.n_episode"),
        ("learn.grad_clip_norm", "learn.grad_clip_value", "learn.clip_value"),
        ("learn.adam_eps", "learn.optimizer.eps"),
    )
    without_effect: ClassVar[dict[str, str]] = {
        "collect.discount_factor": "returns are the learner's: policy.discount_factor or learn.discount_factor",
        "collect.unroll_len": "it is a copy of policy.unroll_len",
        "collect.gae_lambda": "V-trace has its own: learn.lambda_",
        "learn.optim": "learn.optimizer.type says how a gradient becomes a step",
    }
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "nstep": (1, "it has no use with V-trace; set unroll_len and learn.lambda_")
    }
    rows_are_sequences = True
    rows_need_networks = False

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        learn = cfg["learn"]
        # What is wrong with these where rows are used as they come is not wrong here.
        allowed = ("discount_factor", "priority", "random_collect_size")
        yield from (fault for fault in super().check_config(cfg) if fault[0] not in allowed)
        if learn["discount_factor"] not in (None, cfg["discount_factor"]):
            yield from cls._no_effect(cfg, ("discount_factor",), "learn.discount_factor is set too")
        if cfg["random_collect_size"] and cfg["action_space"] == "continuous":
            yield NoEffect(
                "random_collect_size", "needs discrete actions, whose log probability is known; leave it out"
            )

    @classmethod
    def env_steps_per_row(cls, cfg: Config) -> int:
        """Return the steps of a sequence."""
        return int(cfg["unroll_len"])

    def __init__(self, cfg: Config, model: nn.Module | None = None, enable_field: Sequence[str] | None = None) -> None:
        super().__init__(cfg, model, enable_field)
        self._unroll_len = self.env_steps_per_row(self._cfg)
        self._shape = SequenceShape(self._unroll_len)

    # ---- rows

    # Sequences with the log probabilities when acting.
    num_ready, segment = Policy.num_ready, Policy.segment

    def row_maker(self) -> SequencesWithLogProb:
        shape: Any = None if self._cfg.action_space == "continuous" else self._cfg.model.get("action_shape")
        sizes = None if shape is None else tuple(as_sizes("action_shape", shape))
        return SequencesWithLogProb(self._shape, sizes)

    # ---- learning

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield the batch itself."""
        yield self._one_update(batch, steps_per_row=self._unroll_len)

    def part_of(self, minibatch: TransitionBatch, share: Share) -> tuple[TransitionBatch, float]:
        """Return (the sequences of one share of a minibatch, what their steps count among those of all)."""
        if len(minibatch) < share.num_learners:
            return super().part_of(minibatch, share)
        own = minibatch[share.of(len(minibatch))]
        return own, np.count_nonzero(own["mask"]) / np.count_nonzero(minibatch["mask"])

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for sequences; return (what to log, their mean value errors or None)."""
        learn, rows = self._cfg.learn, batch.to(self._device)
        log_prob, entropy, values = self._evaluate(rows)
        mask, weight = rows["mask"], self._weight(rows)
        # Beyond an episode numbers mean nothing, and might be infinite.
        log_ratio = (log_prob.detach() - rows["log_prob"]).masked_fill(~mask, 0.0)
        fixed, terminated = values.detach(), rows["terminated"]
        ends = torch.zeros_like(terminated) if learn.ignore_done else terminated, terminated | rows["truncated"]
        setting = dict(gamma=self._gamma, lambda_=learn.lambda_, rho_pg_clip=learn.rho_pg_clip_ratio, valid=mask)
        setting.update(rho_clip=learn.rho_clip_ratio, c_clip=learn.c_clip_ratio)
        found = vtrace(log_ratio, rows["reward"], fixed[:, :-1], fixed[:, 1:], *ends, **setting)
        share = mask / mask.sum()  # of a step in the means
        weighted = share if weight is None else share * weight.unsqueeze(1)
        error = (found.target - values[:, :-1]).masked_fill(~mask, 0.0)
        advantage = found.advantage.masked_fill(~mask, 0.0)
        policy_loss = -(weighted * advantage * log_prob).sum()
        value_loss = 0.5 * (weighted * error.square()).sum()
        entropy = (weighted * entropy).sum()
        loss = self._params.backward(policy_loss + learn.value_weight * value_loss - learn.entropy_weight * entropy)
        info = {
            "cur_lr": self._now(self._learning_rate),
            "total_loss": loss,
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "value": (share * fixed[:, :-1]).sum(),
            "importance": (share * log_ratio.exp()).sum(),
        }
        if not self._cfg.priority:
            return info, None
        mean_error: Array = (error.detach().abs().sum(dim=1) / mask.sum(dim=1)).cpu().numpy()
        return info, mean_error

    def _evaluate(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return (log probabilities [B, L], entropies [B, L], values [B, L + 1]) of sequences, with gradients."""
        self._params.follow()
        length = self._unroll_len
        obs, mask = split_mask(map_obs(lambda part: part.flatten(0, 1), self._obs(rows)))
        output, value = self._model.actor_critic(obs)
        output = allowed_logits(output, mask)
        output = output.view(-1, length + 1, output.shape[1])[:, :-1].flatten(0, 1)
        action = rows[self._family.column].flatten(0, 1)
        log_prob, entropy = self._family.log_prob_and_entropy(output, action)
        return log_prob.view(-1, length), entropy.view(-1, length), value.view(-1, length + 1)

    monitored: tuple[str, ...] = (*OnPolicyActorCritic.monitored, "value", "importance")
