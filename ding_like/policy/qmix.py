"""QMIX (Rashid et al. 2018): Q-learning of a team whose members act on what each of them sees.

All agents of an env are one lane: the observation has `agents` [N, O] and `state` [S], the action [N] and one reward
for all. Agent a's value Q_a depends on its own observation; the mixer puts them together, growing in each:

    y    = r + discount * Q_tot'(s', (argmax_u Q_a(o_a', u))_a)      u legal; second part only if not terminated
    loss = mean((Q_tot(s, (Q_a(o_a, u_a))_a) - y)^2)                 or Huber's loss with learn.loss="huber"

The networks are feed-forward: agents remember nothing, where the paper gives them a recurrent network.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from ding_like.data.batch import TransitionBatch
from ding_like.data.obs import split_mask
from ding_like.model.flat_params import FlatParams
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.optimizer import FlatOptimizer
from ding_like.rl_utils.td import legal_value, nstep_td_target
from ding_like.types import Array
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("qmix")
class QMIXPolicy(DQNPolicy):
    """Learn a team's discrete actions off-policy from its common reward."""

    config: dict[str, Any] = dict(
        type="qmix",
        discount_factor=0.99,
        learn=dict(backend="autograd", learning_rate=5e-4, grad_clip_norm=10.0),
    )
    action_spaces = ("MultiDiscrete",)

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        yield from cls._no_effect(cfg, ("learn.backend",), "no gradient by hand is known for the mixing network")

    def default_model(self) -> tuple[str, list[str]]:
        return "qmix", []

    def _init_learn(self) -> None:
        self._target_model = copy.deepcopy(self._model)
        self._params = FlatParams(self._model)
        self._target_params = FlatParams(self._target_model)
        self._optimizer = FlatOptimizer.from_config(self._params, self._cfg.learn)
        self._num_updates = 0

    def grad(self, batch: TransitionBatch) -> tuple[dict[str, Any], Array | None]:
        """Fill the gradient of the TD loss; priorities are absolute TD errors [B]."""
        self._params.follow()
        tensors = batch.to(self._device)
        obs, _ = split_mask(self._obs(tensors))
        terminated = tensors["terminated"]
        if self._cfg.learn.ignore_done:
            terminated = torch.zeros_like(terminated)
        discount = tensors.columns.get("discount", self._gamma)
        with torch.no_grad():
            next_value = self._next_total(*split_mask(self._obs(tensors, "next_obs")))
        target = nstep_td_target(tensors["reward"], next_value, discount=discount, terminated=terminated)
        chosen = self._model.q(obs).gather(2, tensors["action"].long().unsqueeze(2)).squeeze(2)
        total = self._model.mix(chosen, obs)
        error = total - target
        each = error.square() if self._cfg.learn.loss == "mse" else huber_loss(total, target, reduction="none")
        weight = self._weight(tensors)
        loss = (each if weight is None else weight * each).mean()
        self._params.zero_grad()
        loss.backward()
        self._params.loss.copy_(loss.detach())
        info = {**self._lr_and_loss(loss.detach()), "q_value": total.detach(), "target_q_value": target}
        return info, error.detach().abs().cpu().numpy() if self._cfg.priority else None

    def _next_total(self, next_obs: Any, mask: Tensor | None) -> Tensor:
        """Return Q_tot' [B] where every agent takes its best legal action: by the online network with `double`."""
        values = self._target_model.q(next_obs)
        judge = self._model.q(next_obs) if self._cfg.double else values
        total: Tensor = self._target_model.mix(legal_value(judge, values, mask), next_obs)
        return total
