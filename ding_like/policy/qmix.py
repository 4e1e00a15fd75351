"""QMIX (Rashid et al. 2018): Q-learning of a team whose members act on what each of them sees.

All agents of an env are one lane: the observation has `agents` [N, O] and `state` [S], the action [N] and one reward
for all. Agent a's value Q_a depends on its own observation; the mixer puts them together, growing in each:

    y    = r + discount * Q_tot'(s', (argmax_u Q_a(o_a', u))_a)      u legal; second part only if not terminated
    loss = mean((Q_tot(s, (Q_a(o_a, u_a))_a) - y)^2)                 or Huber's loss with learn.loss="huber"

The update is DQN's, with these two in place of one agent's values. The networks are feed-forward: agents remember
nothing, where the paper gives them a recurrent network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.data.obs import split_mask
from ding_like.policy.dqn import DQNPolicy
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

    # Any: observations as the model takes them, arrays or tensors.
    def _next_value(self, next_obs: Any, mask: Any) -> Tensor:
        """Return Q_tot' [B] where every agent takes its best legal action: by the online network with `double`."""
        total: Tensor = self._target_model.mix(super()._next_value(next_obs, mask), next_obs)
        return total

    def _chosen(self, rows: TransitionBatch) -> tuple[Tensor, Tensor]:
        """Return Q_tot [B] of the actions that the agents took, twice: it is what to log as well."""
        obs, _ = split_mask(self._obs(rows))
        total = self._model.mix(self._family.of_action(self._model.q(obs), rows["action"]), obs)
        return total, total
