"""Independent DQN (Tampuu et al. 2017): each agent of a team learns by DQN, and takes the others for its env.

A row of agent i is (view, action, r, next view, terminated), r its own reward of the step. The loss is DQN's, over the
rows of all agents that were alive in the batch:

    y    = r + discount_factor * Q_target(next view, argmax_a Q(next view, a))      second part only if not terminated
    loss = mean((Q(view, action) - y)^2)                                            or Huber's with learn.loss="huber"

All agents share the network, which sees an agent's number, one-hot, beside its view. The replay buffer holds rows of
the team, so that a batch is of `learn.batch_size` steps of it; `policy/by_agent.py` takes them apart. Rewards are of
one step, and so are targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.policy.by_agent import ByAgent, TeamPolicy
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.forward import ForwardActor
from ding_like.utils.registries import POLICY_REGISTRY

_LEARNED = ("obs", "next_obs", "action", "reward", "terminated")


@POLICY_REGISTRY.register("idqn")
class IDQNPolicy(TeamPolicy, DQNPolicy):
    """Deep Q-learning of each agent of a team by itself, of discrete actions."""

    config: dict[str, Any] = dict(type="idqn")
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "nstep": (1, "each agent's own rewards are those of one step"),
        "priority": (False, "a row is of several agents, whose errors differ"),
    }
    action_spaces = ("MultiDiscrete",)
    model_name = "idqn"
    # Shares are of agents' rows, of which a part of a batch has more than another.
    takes_whole_batches = True

    def _model_sizes(self) -> dict[str, int]:
        return {"A": self._team.num_actions}

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        actor = super()._make_actor(explores=explores)
        actor.forward = ByAgent(actor.forward, self._team.num_agents)
        return actor

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield the rows of all agents that were alive, or, of several learners, this one's share of them."""
        rows = TransitionBatch(self._agents_rows(batch.columns, _LEARNED)[0])
        self._grad_weight = self._share.weight(len(rows))
        yield rows[self._share.of(len(rows))]

    def grad_weight(self) -> float:
        return self._grad_weight
