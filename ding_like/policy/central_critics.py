"""What MADDPG, MATD3 and MASAC share: rows by agent, and what the critics of each agent see of the others' actions.

All agents of a team are one lane (`data/team.py`). Each agent i has critics Q_i(x, a_1 .. a_N) of its own, central
ones: x is the state, or what all agents see, and a_j what each does. It learns from its own reward, so that agents may
be rivals, and from the rows alone in which it acts:

    r_i      = next_obs/rewards[i]
    ended_i  = terminated or next_obs/ended[i]        else what follows is estimated, also where its time is up
    loss     = mean over rows of the sum over agents i that act (obs/alive[i]) of loss_i

The mean is over all rows, so that several learners with a part of them each learn what one does; to Adam it is the same
as one over the rows of each agent, but for their number in a batch. To every critic the action of an agent that does
not act is 0, but its own: an agent whose time is up before the others' would go on, and its last value is that of what
it would do. Rows are of one step, as the rewards of each agent are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.data.team import AGENTS, ALIVE, ENDED, OUTCOMES, REWARDS
from ding_like.errors import ConfigError
from ding_like.policy.forward import Choose, ForwardActor, NetworkForward
from ding_like.policy.offpolicy import OffPolicyActorCritic, Rows
from ding_like.types import Array, Info


class CentralCriticPolicy(OffPolicyActorCritic):
    """Actors of a team with central critics: what an algorithm of a single agent lacks.

    It comes first among the bases of a policy, before that algorithm. The model has `act(obs)`, `actor(obs)` and
    `critic(obs, actions) -> [C, B, N]` of C critics for each of N agents.
    """

    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "the gradient of a team's networks is autograd's"}
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "nstep": (1, "a row has the reward of each agent for its own step alone"),
    }
    model_name = "team_qac"

    def _actor_that(self, choose: Choose) -> ForwardActor:
        return ForwardActor(NetworkForward(self._model.act, None, self._device), choose)

    def why_no_reward_model(self) -> str | None:
        """Return why rows cannot be given other rewards."""
        return "each agent learns from its own reward, and a reward model gives one for the team"

    def _init_learn(self) -> None:
        if missing := [name for name in OUTCOMES if name not in self._cfg.model.obs_shape]:
            raise ConfigError(
                f"policy '{self._cfg.type}' learns what each agent was paid and when it left, but the observation has "
                f"no {', '.join(missing)}: env type 'joint_petting_zoo' gives them."
            )
        super()._init_learn()

    @property
    def _is_discrete(self) -> bool:
        """Whether agents choose among actions."""
        return not isinstance(self._cfg.model.action_shape, int)

    def _rows(self, batch: TransitionBatch) -> Rows:
        """Begin a gradient: return rows whose numbers are of each agent, [B, N] in place of [B].

        Rows in which an agent does not act have a weight of 0 for it, and its actions there are 0.
        """
        rows = super()._rows(batch)
        self._acts: Tensor = rows.obs[ALIVE].to(rows.reward.dtype)  # [B, N]
        ended = rows.terminated.unsqueeze(1) | (rows.next_obs[ENDED] != 0)
        weight = rows.weight.unsqueeze(1) if isinstance(rows.weight, Tensor) else rows.weight
        return rows._replace(
            action=rows.action * self._acts.unsqueeze(2),
            reward=rows.next_obs[REWARDS],
            terminated=torch.zeros_like(ended) if self._cfg.learn.ignore_done else ended,
            weight=weight * self._acts,
        )

    def _inside(self, action: Tensor) -> Tensor:
        """Return actions of rows as the critics take them, [B, N, A]: scaled to [-1, 1], or one-hot."""
        if self._is_discrete:
            one_hot: Tensor = F.one_hot(action.long(), int(self._cfg.model.action_shape[0]))
            return one_hot.float()
        return super()._inside(action).view(len(action), int(self._cfg.model.obs_shape[AGENTS][0]), -1)

    def _joint(self, own: Tensor, others: Tensor) -> Tensor:
        """Return what the critics of each agent are given of all agents' actions, [B, N, N, A].

        Those of agent i are given its own action from `own` [B, N, A] and those of the others from `others`.
        """
        is_own = torch.eye(own.shape[1], dtype=torch.bool, device=own.device)[..., None]
        return torch.where(is_own, own.unsqueeze(1), others.unsqueeze(1))

    def _next_others(self, action: Tensor, rows: Rows) -> Tensor:
        """Return next actions [B, N, A] as critics of other agents are given them: 0 of those that do not act."""
        alive: Tensor = rows.next_obs[ALIVE].to(action.dtype)
        return action * alive.unsqueeze(2)

    def _next_joint(self, action: Tensor, rows: Rows) -> Tensor:
        """Return what `_joint` does of next actions [B, N, A]."""
        return self._joint(action, self._next_others(action, rows))

    def _gumbel_like(self, logit: Tensor) -> Tensor:
        """Return g = -log(-log u) of uniform u in the shape of logits: the best of logits + g is a draw by them."""
        uniform = self._noise.uniform(*logit.shape, share=self._share)
        return -(-uniform.clamp_(min=torch.finfo(uniform.dtype).tiny).log()).log()

    def _mean_sum(self, each: Tensor) -> Tensor:
        """Return the mean over rows of the sum of `each` [B, N] over the agents that act."""
        return (self._acts * each).sum(dim=1).mean()

    def _priority(self, error: Tensor) -> Array | None:
        """Return the absolute TD error [B]: the mean over critics [C, B, N] and the agents that act."""
        if not self._cfg.priority:
            return None
        each = error.detach().abs().mean(dim=0) * self._acts
        found: Array = (each.sum(dim=1) / self._acts.sum(dim=1).clamp(min=1.0)).cpu().numpy()
        return found

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients; what is logged of values and entropies is the mean over agents that act."""
        info, priority = super().grad(batch)
        for name in ("q_value", "target_q_value", "entropy"):
            if name in info:
                each = info[name]
                info[name] = (each * self._acts).sum() / self._acts.expand_as(each).sum().clamp(min=1.0)
        return info, priority
