"""QMIX (Rashid et al. 2018): Q-learning of a team whose members act on what each of them sees.

All agents of an env are one lane: the observation has `agents` [N, O] and `state` [S], the action [N] and one reward
for all. Agent a's value Q_a depends on its own observation; the mixer puts them together, growing in each:

    y    = r + discount * Q_tot'(s', (argmax_u Q_a(o_a', u))_a)      u legal; second part only if not terminated
    loss = mean((Q_tot(s, (Q_a(o_a, u_a))_a) - y)^2)                 or Huber's loss with learn.loss="huber"

With `model.mixer=False` Q_tot is the sum of the Q_a: value decomposition networks (Sunehag et al. 2018). The update is
DQN's, with these two in place of one agent's values. The networks are feed-forward: agents remember
nothing, where the paper gives them a recurrent network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from torch import Tensor

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.errors import ConfigError
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.types import Config
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("qmix")
class QMIXPolicy(DQNPolicy):
    """Q-learning of a team's discrete actions from its common reward."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("q", gives=("B N A",)),
        ModelMethod("mix", "values, obs", ("B",)),
    )
    config: dict[str, Any] = dict(
        type="qmix", discount_factor=0.99, learn=dict(backend="autograd", learning_rate=5e-4, grad_clip_norm=10.0)
    )
    action_spaces = ("MultiDiscrete",)
    config_unused: ClassVar[Mapping[str, str]] = {
        "learn.backend": "no gradient by hand is known for the mixing network"
    }

    model_name = "qmix"

    # Any: what a config may hold.
    @classmethod
    def fit_model_section(cls, model: Config) -> dict[str, Any]:
        """Return a model section in which DI-engine's keys have become ours.

        There `obs_shape` and `action_shape` are those of one agent of `agent_num`, and `global_obs_shape` is the
        state's. Keys that are not all given are left to the env.
        """
        own = dict(model)
        agents, state = own.pop("agent_num", None), own.pop("global_obs_shape", None)
        size, actions = own.get("obs_shape"), own.get("action_shape")
        if isinstance(size, int):
            if agents is None or state is None:
                raise ConfigError(
                    "policy.model.obs_shape of 'qmix' is one agent's, and goes with agent_num and global_obs_shape; "
                    "give the three, or none: the env says them."
                )
            own["obs_shape"] = {"agents": [agents, size], "state": state}
        if isinstance(actions, int) and agents is not None:
            own["action_shape"] = [actions] * agents
        return own

    # Any: tensors, in a dict.
    def _next_value(self, next_obs: Any, mask: Any) -> Tensor:
        """Return Q_tot' [B] where every agent takes its best legal action: by the online network with `double`."""
        return cast(Tensor, self._target_model.mix(super()._next_value(next_obs, mask), next_obs))

    def _chosen(self, rows: TransitionBatch) -> tuple[Tensor, Tensor]:
        """Return Q_tot [B] of the actions that the agents took, twice: it is what to log as well."""
        obs, _ = split_mask(self._obs(rows))
        total = self._model.mix(self._family.of_action(self._model.q(obs), rows["action"]), obs)
        return total, total
