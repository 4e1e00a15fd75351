"""R2D2: recurrent Q-learning from replayed sequences (Kapturowski et al. 2019).

A row is a sequence of one lane (`policy/rows.py`): `burnin_step` steps that only warm up the recurrent state,
then `learn_unroll_len` that are learned from, and the state s that the actor had before the first of them. Online and
target network are unrolled from s over all of it, and for every step t that is learned from

    y_t   = h(R_t + gamma^k h^-1(Q'(o_{t+k}, argmax_a Q(o_{t+k}, a))))       second part only if not terminated
    delta_t = y_t - Q(o_t, a_t)                                              Q, Q' also of what is remembered at t
    loss  = mean over rows of weight * sum_t loss(delta_t) / learn_unroll_len
    p     = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|                 the row's priority, eta = 0.9

R_t is the discounted sum of the next k rewards: `nstep`, or as many as the row still has. No gradient goes through
burn-in. h is that of Pohlen et al. 2018 (`rl_utils/value_family.py`).

DRQN (Hausknecht and Stone 2015) is its plain form: values on their own scale, one-step targets, no priorities, no
burn-in and a target network that is copied now and then. A row begins with the recurrent state that the actor had
there, where that paper begins with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.policy.forward import EpsilonGreedy, ForwardActor, RecurrentForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.sequences import SequencePolicy, priority_of_rows
from ding_like.policy.value_based import ValueBasedPolicy
from ding_like.rl_utils.value_family import RescaledValue, ScalarValue, ValueFamily, weighted_mean
from ding_like.types import Array
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("r2d2")
class R2D2Policy(SequencePolicy, ValueBasedPolicy):
    """Q-learning from sequences, with a recurrent network."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("run", "obs, state", ("B T A", "state")),
        ModelMethod("initial_state", None),
    )
    config: dict[str, Any] = dict(
        type="r2d2",
        priority=True,
        priority_IS_weight=True,
        discount_factor=0.997,
        nstep=5,
        learn=dict(
            update_per_collect=1,
            learning_rate=1e-4,
            backend="autograd",
            # Learn values on the scale of h(Q), which brings large returns close together.
            value_rescale=True,
            target_update_freq=None,
            target_theta=0.001,
        ),
        # The buffer that draws by priority.
        other=dict(eps=dict(end=0.05), replay_buffer=dict(type="advanced")),
    )
    config_unused: ClassVar[Mapping[str, str]] = {
        "learn.backend": "no gradient by hand is known for recurrent networks"
    }

    model_name = "drqn"

    @cached_property
    def _family(self) -> ValueFamily[Tensor]:
        return (RescaledValue if self._cfg.learn.value_rescale else ScalarValue)(self._cfg.learn.loss)

    # ---- acting

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        forward = RecurrentForward(self._model.run, self._model.initial_state, self._device)
        return ForwardActor(forward, EpsilonGreedy())

    # ---- learning

    def _fill(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Tensor, Array | None]:
        """Fill the gradient; return (loss, value and target of a step on average, priorities [B] if wanted)."""
        self._params.follow()
        obs, legal = split_mask(self._obs(rows))
        state, mask = self._obs(rows, "state"), rows["mask"]
        values = self._unroll(self._model.run, obs, state, begins=mask[:, 0])  # [B, L + 1, A]
        with torch.no_grad():
            target = self._targets(rows, values.detach(), self._target_model.run(obs, state)[0], legal)
        chosen = self._family.of_action(values[:, :-1], rows["action"])
        each = self._family.loss(chosen, target)  # [B, L]
        losses = each.loss + self._beside(rows, values[:, :-1], None if legal is None else legal[:, :-1])
        of_rows = (losses * mask).sum(dim=1) / self._shape.num_steps
        loss = self._params.backward(weighted_mean(of_rows, self._weight(rows)))
        share = mask / mask.sum()
        priority: Array | None = None
        if self._cfg.priority:
            priority = priority_of_rows(each.priority, mask).cpu().numpy()
        return loss, (chosen.detach() * share).sum(), (target * share).sum(), priority

    # Any: a mask of legal actions, or None.
    def _beside(self, rows: TransitionBatch, values: Tensor, legal: Any) -> Tensor | float:
        """Return what is added to the losses [B, L] of TD errors, given the online network's values [B, L, A]."""
        return 0.0

    # Any: a mask of legal actions, or None.
    def _targets(self, rows: TransitionBatch, online: Tensor, target: Tensor, legal: Any) -> Tensor:
        """Return y [B, L] of both networks' values [B, L + 1, A]."""
        best = self._family.of_best(target, online if self._cfg.double else target, legal)
        next_value = best.gather(1, self._return_ends(rows["num_steps"]))
        return self._family.backup(rows["reward"], next_value, **self._following(rows))


@POLICY_REGISTRY.register("drqn")
class DRQNPolicy(R2D2Policy):
    """Q-learning from sequences drawn uniformly, with a recurrent network."""

    config: dict[str, Any] = dict(
        type="drqn",
        priority=False,
        priority_IS_weight=False,
        discount_factor=0.99,
        nstep=1,
        burnin_step=0,
        learn_unroll_len=10,
        learn=dict(value_rescale=False, learning_rate=1e-3, target_update_freq=100, target_theta=None),
        other=dict(replay_buffer=dict(type="naive")),
    )
