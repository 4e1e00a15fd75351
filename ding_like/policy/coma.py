"""COMA (Foerster et al. 2018, "Counterfactual Multi-Agent Policy Gradients"): each agent learns from its own part.

Agents act by one network pi that names the agent. A central critic gives the value Q_a(s, (u_-a, u')) of each action u'
of agent a where the others do what they did, u_-a. What an agent did is compared with what it would have got on average
by other actions of its own (equation 4), means over the agents with alive_a = 1:

    A_a         = Q_a(s, u) - sum_u' pi(u' | o_a) Q_a(s, (u_-a, u'))             a constant
    policy loss = -mean(A_a log pi(u_a | o_a))
    value loss  = mean((Q_a(s, u) - y)^2)
    loss        = policy loss + value_weight * value loss - entropy_weight * mean(entropy)

The targets are TD(lambda)'s, lambda being collect.gae_lambda, by the target critic Q'. As all its outputs stand for the
same return of the team, it is their mean over the agents that act, which goes on when one of them has left:

    Q'(s, u) = mean of Q'_a(s, u) over a with alive_a = 1
    y_t      = r_t + gamma ((1 - lambda) Q'(s_t+1, u_t+1) + lambda y_t+1)        r_t alone if terminated

Where time is up, or what was collected ends, u_t+1 is drawn from pi as it is, and y_t+1 = Q'(s_t+1, u_t+1). Targets are
computed where they are learned from: collectors act, and need no critic.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ding_like.data.batch import TransitionBatch, columns_to_obs, split_mask
from ding_like.data.team import ALIVE
from ding_like.model.flat_params import FlatParams
from ding_like.policy.base import Policy
from ding_like.policy.forward import ForwardActor, OfFamily, to_device
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.onpolicy import OnPolicy, OnPolicyActorCritic
from ding_like.policy.sharing import Moving, Pending, Share
from ding_like.policy.vdn import present
from ding_like.rl_utils.distributions import allowed_logits, mask_logits
from ding_like.types import Array, Info, State
from ding_like.utils.bounds import FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("coma")
class COMAPolicy(OnPolicyActorCritic):
    """Policy gradients of a team with a central critic and a counterfactual baseline, for discrete actions."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor", gives=("B P",)),
        ModelMethod("critic", "obs, joint action", ("B N A",)),
    )
    config: dict[str, Any] = dict(
        type="coma",
        learn=dict(
            batch_size=64,
            learning_rate=5e-4,
            entropy_weight=0.01,
            # Updates between two copies of the critic into the target critic.
            target_update_freq=20,
        ),
        collect=dict(n_sample=256, gae_lambda=0.8),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.target_update_freq": FROM_1}
    action_spaces = ("MultiDiscrete",)

    model_name = "coma"

    _build_model = Policy._build_model

    def _init_learn(self) -> None:
        super()._init_learn()
        self._target_model = copy.deepcopy(self._model)
        self._target_params = FlatParams(self._target_model)
        self._num_updates = Pending(0, int, int)

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        return ForwardActor(self._forward("actor"), OfFamily(self._family, not explores, with_log_prob=False))

    # ---- rows: those of the env, until they are learned from

    segment, num_ready, with_returns = Policy.segment, Policy.num_ready, Policy.with_returns
    rows_need_networks = False

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield every row once, in shuffled minibatches, with its target."""
        self._begin_train(batch, num_rows=len(batch))
        next_action = self._draw(columns_to_obs("next_obs", batch.columns), rng)
        rows = OnPolicy.with_returns(self, batch.with_columns(next_action=next_action))
        yield from self._shuffled(rows, self._cfg.learn.batch_size, rng)

    def _draw(self, obs: Any, rng: np.random.Generator) -> Array:  # Any: a dict of arrays
        """Return actions [R, N] of the policy as it is."""
        obs, mask = split_mask(obs)
        logits = self._forward("actor").array(obs)
        return self._family.sample(logits if mask is None else mask_logits(logits, mask), rng)["action"]

    def _values_of(self, columns: Mapping[str, Array], edge: Array) -> tuple[Array, Array]:
        """Return Q' of rows [N], and of what follows the rows `edge` [K]."""
        obs, next_obs = (columns_to_obs(prefix, columns) for prefix in ("obs", "next_obs"))
        after = {name: column.take(edge, axis=0) for name, column in next_obs.items()}
        return self._team_value(obs, columns["action"]), self._team_value(
            after, columns["next_action"].take(edge, axis=0)
        )

    def _team_value(self, obs: Any, action: Array) -> Array:  # Any: a dict of arrays
        """Return Q' [R] float32 of joint actions [R, N]."""
        with torch.no_grad():
            tensors = to_device(split_mask(obs)[0], self._device)
            here = present(tensors)
            taken = torch.from_numpy(action).to(self._device)
            values = _of_action(self._critic_of(self._target_model, tensors, taken, here), taken)
            mean: Array = (_share(here, dim=1) * values).sum(dim=1).float().cpu().numpy()
        return mean

    def part_of(self, minibatch: TransitionBatch, share: Share) -> tuple[TransitionBatch, float]:
        """Return (the rows of one share of a minibatch, what their agents count among those of all)."""
        own, weight = super().part_of(minibatch, share)
        alive = minibatch.columns.get(f"obs/{ALIVE}")
        if alive is None or len(minibatch) < share.num_learners:
            return own, weight
        return own, np.count_nonzero(own[f"obs/{ALIVE}"]) / max(int(np.count_nonzero(alive)), 1)

    # ---- learning

    _loss_columns: tuple[str, ...] = ("return_",)

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for one minibatch."""
        learn, rows = self._cfg.learn, batch.to(self._device)
        self._params.follow()
        obs, mask = split_mask(self._obs(rows))
        here, action = present(obs), rows["action"]
        values = self._critic_of(self._model, obs, action, here)
        log_probs = allowed_logits(self._model.actor(obs), mask).view(values.shape).log_softmax(dim=-1)
        probs, taken = log_probs.exp(), _of_action(values, action)
        advantage = (taken - (probs * values).sum(dim=-1)).detach()
        share = _share(here)
        policy_loss = -(share * advantage * _of_action(log_probs, action)).sum()
        value_loss = (share * (taken - rows["return_"].unsqueeze(1)).square()).sum()
        entropy = -(share * (probs * log_probs).sum(dim=-1)).sum()
        loss = self._params.backward(policy_loss + learn.value_weight * value_loss - learn.entropy_weight * entropy)
        self._num_updates.next = self._num_updates.now + 1
        info = {
            "cur_lr": self._now(self._learning_rate),
            "total_loss": loss,
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
        }
        return info, None

    # Any: a network of a team.
    def _critic_of(self, model: Any, obs: Mapping[str, Tensor], action: Tensor, here: Tensor) -> Tensor:
        """Return a critic's values [B, N, A], which sees the actions [B, N] of agents that are there."""
        size = self._cfg.model.action_shape[0]
        values: Tensor = model.critic(obs, one_hot(action.long(), size).masked_fill(~here.unsqueeze(-1), 0))
        return values

    def apply(self) -> None:
        """Take one optimizer step, and copy the critic into the target critic by period."""
        super().apply()
        if self._num_updates.now % self._cfg.learn.target_update_freq == 0:
            self._target_params.copy_from(self._params)

    def _moving(self) -> dict[str, Moving]:
        return {**super()._moving(), "num_updates": self._num_updates}

    def _grad_modules(self) -> dict[str, nn.Module]:
        return {**super()._grad_modules(), "target": self._target_model}

    def _state_dict_learn(self) -> State:
        return {**super()._state_dict_learn(), "target_model": self._target_model.state_dict()}

    def _load_state_dict_learn(self, state: State) -> None:
        super()._load_state_dict_learn(state)
        self._target_model.load_state_dict(state.get("target_model", state["model"]))


def _share(here: Tensor, dim: int | None = None) -> Tensor:
    """Return what each agent counts in a mean over those that are there, all together or along an axis."""
    counts = here.sum() if dim is None else here.sum(dim=dim, keepdim=True)
    return here / counts.clamp(min=1)


def _of_action(values: Tensor, action: Tensor) -> Tensor:
    """Return what values [B, N, A] say of actions [B, N]."""
    return values.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
