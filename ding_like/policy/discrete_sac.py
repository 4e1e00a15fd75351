"""Soft actor-critic for discrete actions (Christodoulou 2019).

The actor pi is a softmax over A actions, so that what `policy/sac.py` estimates from an action drawn is a sum over all
of them: no gradient has noise from drawing. A row is (obs, action, R, discount, next_obs, terminated), R the discounted
sum of its rewards; Q_i(s) are the values of all actions, and Q_i' those of the target networks. The losses are

    V(s; Q)     = sum_a pi(a|s) * (min_i Q_i(s)[a] - alpha * log pi(a|s))
    y           = R + discount * V(next_obs; Q')                  second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs)[action] - y)^2 / 2)
    actor_loss  = -mean(V(obs; Q))
    alpha_loss  = log alpha * mean(H(pi(.|obs)) - target_entropy)

and after each step Q' moves a share theta towards Q. By default the target entropy is 0.98 * log A, nearly that of
drawing uniformly. Actions that a mask forbids have probability 0 and are in no sum, and A counts those it allows.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.data.obs import split_mask
from ding_like.policy.choose import OfFamily
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.sac import SoftActorCritic
from ding_like.rl_utils.distributions import Categorical
from ding_like.rl_utils.td import entropy_of, log_softmax, nstep_td_target, soft_value
from ding_like.types import Array, Info
from ding_like.utils.registries import POLICY_REGISTRY

# Christodoulou 2019, appendix: the share of the largest possible entropy that the temperature aims at.
_SHARE_OF_LARGEST_ENTROPY = 0.98


@POLICY_REGISTRY.register("discrete_sac")
class DiscreteSACPolicy(SoftActorCritic):
    """Softmax over discrete actions, two critics and a temperature, learned off-policy."""

    model_methods: tuple[ModelMethod, ...] = (ModelMethod("actor"), ModelMethod("critic", gives=("N B A",)))
    config: dict[str, Any] = dict(type="discrete_sac")
    # Keys of DI-engine's configs.
    without_effect: ClassVar[dict[str, str]] = {
        "model.agent_obs_shape": "the model is that of a single agent: model.obs_shape",
        "model.global_obs_shape": "the critic sees what the actor sees",
    }
    action_spaces = ("Discrete",)

    def default_model(self) -> tuple[str, list[str]]:
        return "discrete_qac", []

    def _init_collect(self) -> None:
        # No log probabilities: rows made at random have none, and the losses take their own.
        self._collect_actor = self._actor_that(OfFamily(Categorical(), is_greedy=False, with_log_prob=False))

    def _init_eval(self) -> None:
        self._eval_actor = self._actor_that(OfFamily(Categorical(), is_greedy=True))

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of critics, actor and temperature; priorities are absolute TD errors [B]."""
        rows = self._rows(batch)
        alpha = self._temperature.network.log_alpha.detach().exp()
        with torch.no_grad():
            next_value = self._next_value(rows.next_obs, alpha)
            target = nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)
        obs, mask = split_mask(rows.obs)
        values = self._critic.network(obs)  # [N, B, A]
        q = values.gather(2, rows.action.expand(len(values), -1).unsqueeze(2)).squeeze(2)
        error = q - target
        critic_loss = self._critic.backward(0.5 * (rows.weight * error.square()).mean(dim=1).sum())

        log_pi = log_softmax(self._actor.network(obs), mask)
        actor_loss = self._actor.backward(-soft_value(log_pi, values.detach().amin(dim=0), alpha=alpha).mean())
        entropy = entropy_of(log_pi.detach())
        info = {
            "total_loss": critic_loss + actor_loss,
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "q_value": q.detach(),
            "target_q_value": target,
            "entropy": entropy,
            "alpha": alpha,
        }
        if self._cfg.learn.auto_alpha:
            info["alpha_loss"] = self._temperature.backward(self._alpha_loss(-entropy, _target_entropy(log_pi, mask)))
        return info, self._priority(error)

    # Any: a tensor or a dict of them.
    def _next_value(self, next_obs: Any, alpha: Tensor) -> Tensor:
        """Return the soft values [B] of next observations; 0 where a mask allows nothing, as nothing can follow."""
        obs, mask = split_mask(next_obs)
        log_pi = log_softmax(self._actor.network(obs), mask)
        value = soft_value(log_pi, self._critic.target(obs).amin(dim=0), alpha=alpha)
        return value if mask is None else value.masked_fill((mask == 0).reshape(log_pi.shape).all(dim=1), 0.0)

    def _inside(self, action: Tensor) -> Tensor:
        return action.long()


def _target_entropy(log_pi: Tensor, mask: Tensor | None) -> Tensor | float:
    """Return the default target of the entropy: a number, or one for each row [B] where masks [B, A] differ."""
    if mask is None:
        return _SHARE_OF_LARGEST_ENTROPY * math.log(log_pi.shape[1])
    return _SHARE_OF_LARGEST_ENTROPY * (mask != 0).reshape(log_pi.shape).sum(dim=1).log()
