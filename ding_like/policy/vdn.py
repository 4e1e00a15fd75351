"""Value decomposition networks (Sunehag et al. 2018): Q-learning of a team whose value is the sum of its agents' own.

All agents of an env are one lane: the observation has `agents` [N, O] and `state` [S], the action [N] and one reward
for all. Agent a's value Q_a depends on its own observation, and the agents that act add up (equation 1):

    Q_tot(s, u) = sum_a Q_a(o_a, u_a)                                  a with alive_a = 1 at s
    y           = r + discount * Q_tot'(s', (argmax_u Q_a(o_a', u))_a) u legal; second part only if not terminated
    loss        = mean((Q_tot(s, u) - y)^2)                            or Huber's loss with learn.loss="huber"

The update is DQN's, with these two in place of one agent's values; QMIX, weighted QMIX and QTRAN put the values
together in other ways. Agents that have left count 0 in a sum or a mixer, of `s` and of `s'` alike; where the time of
the whole team is up, `s'` has all that would go on. The networks are feed-forward: agents remember nothing, where the
papers give them a recurrent network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.data.team import AGENTS, ALIVE
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.utils.registries import POLICY_REGISTRY


def present(obs: Mapping[str, Tensor]) -> Tensor:
    """Return which agents act at observations, bool [B, N]: all of a team that does not say it."""
    alive = obs.get(ALIVE)
    if alive is None:
        seen = obs[AGENTS]
        return torch.ones(seen.shape[:2], dtype=torch.bool, device=seen.device)
    return alive != 0


@POLICY_REGISTRY.register("vdn")
class VDNPolicy(DQNPolicy):
    """Q-learning of a team's discrete actions from its common reward, by the sum of its agents' values."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("q", gives=("B N A",)),
        ModelMethod("mix", "values, obs", ("B",)),
    )
    config: dict[str, Any] = dict(
        type="vdn", discount_factor=0.99, learn=dict(backend="autograd", learning_rate=5e-4, grad_clip_norm=10.0)
    )
    action_spaces = ("MultiDiscrete",)
    config_unused: ClassVar[Mapping[str, str]] = {
        "learn.backend": "no gradient by hand is known for the networks of a team"
    }

    model_name = "vdn"

    # Any: tensors, in a dict; a network of a team.
    def _next_value(self, next_obs: Any, mask: Any) -> Tensor:
        """Return Q_tot' [B] where every agent takes its best legal action: by the online network with `double`."""
        return self._total(self._target_model, super()._next_value(next_obs, mask), next_obs)

    def _chosen(self, rows: TransitionBatch) -> tuple[Tensor, Tensor]:
        """Return Q_tot [B] of the actions that the agents took, twice: it is what to log as well."""
        obs, _ = split_mask(self._obs(rows))
        total = self._total(self._model, self._family.of_action(self._model.q(obs), rows["action"]), obs)
        return total, total

    def _total(self, model: Any, values: Tensor, obs: Mapping[str, Tensor]) -> Tensor:
        """Return Q_tot [B] of one value per agent [B, N]: 0 of those that have left."""
        return cast(Tensor, model.mix(values.masked_fill(~present(obs), 0.0), obs))

    def _judge(self, next_obs: Mapping[str, Tensor]) -> Tensor:
        """Return the values [B, N, A] by which next actions are chosen: the online network's with `double`."""
        return cast(Tensor, (self._model if self._cfg.double else self._target_model).q(next_obs))
