"""Parametrised deep Q-networks (Xiong et al. 2018), and with several passes MP-DQN (Bester et al. 2019).

For hybrid actions (k, x): one network x(obs) says the parameters of every choice, another Q(obs, x) what each choice is
worth with them. The choice is the best one by Q. A row is (obs, k, x, R, discount, next_obs, terminated), R the
discounted sum of its rewards; primes mark the target networks. The losses are

    y           = R + discount * max_k Q'_k(next_obs, x'(next_obs))     second part only if not terminated
    critic_loss = mean(weight * (Q_k(obs, x) - y)^2)                    of the k and x of the row
    actor_loss  = -mean(sum over k of Q_k(obs, x(obs)))

(Xiong et al. eqs. 5 and 6). In one pass, Q_k depends on the parameters of other choices too, and the actor follows
gradients that mean nothing; `model.multi_pass=True` gives each choice a pass that sees its own parameters alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.data.spaces import hybrid_sizes
from ding_like.errors import ConfigError
from ding_like.policy.forward import ForwardActor, HybridEpsilonGreedy, NetworkForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import OffPolicyActorCritic
from ding_like.policy.trained_network import TrainedNetwork
from ding_like.policy.value_based import EpsilonPolicy
from ding_like.rl_utils.td import nstep_td_target
from ding_like.types import Array, Info
from ding_like.utils.bounds import ABOVE_0, FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("pdqn")
class PDQNPolicy(EpsilonPolicy, OffPolicyActorCritic):
    """Values of choices and their parameters, learned off-policy; epsilon-greedy, with noise on the parameters.

    The model is a 'pdqn', or any with `actor(obs) -> [B, P]` in [-1, 1], `critic(obs, parameters) -> [B, K]` and
    `choose(obs) -> [B, K + P]`, the values and the parameters.
    """

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor", gives=("B P",)),
        ModelMethod("critic", "obs, parameters", ("B K",)),
        ModelMethod("choose", gives=("B K+P",)),
    )
    config: dict[str, Any] = dict(
        type="pdqn",
        learn=dict(
            batch_size=128,
            # Learning rate of the network that judges discrete choices.
            learning_rate_dis=1e-3,
            # Learning rate of the network that gives the parameters of choices.
            learning_rate_cont=1e-4,
            # 1: every update trains both networks. Above: updates of a cycle; its first half trains the network of
            # choices, the rest that of parameters.
            update_circle=1,
        ),
        collect=dict(
            # Add noise to the parameters of greedy actions.
            noise=True,
            # Standard deviation of the exploration noise; 1 is half of a parameter's range.
            noise_sigma=0.1,
        ),
        other=dict(eps=dict(start=1.0, end=0.05)),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.learning_rate_dis": ABOVE_0,
        "learn.learning_rate_cont": ABOVE_0,
        "learn.update_circle": FROM_1,
        "collect.noise_sigma": FROM_0,
    }
    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "no gradient by hand is known for these losses"}
    action_spaces = ("HybridSpace",)

    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "collect.noise": (False, ("collect.noise_sigma",))
    }
    model_name = "pdqn"

    # ---- acting

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        shape = self._cfg.model.get("action_shape")
        if shape is None:
            raise ConfigError("policy.model.action_shape is not set: the policy must know how many choices there are.")
        collect = self._cfg.collect
        noise_sigma = collect.noise_sigma if explores and collect.noise else 0.0
        choose = HybridEpsilonGreedy(self._action_range(), hybrid_sizes(shape)[0], noise_sigma)
        return ForwardActor(NetworkForward(self._model.choose, self._model, self._device), choose)

    # ---- learning

    def _init_learn(self) -> None:
        super()._init_learn()
        self._critic = self._trained(self._model.critic, "learning_rate_dis")
        self._actor = self._trained(self._model.actor, "learning_rate_cont")

    def _inside(self, action: Tensor) -> Tensor:
        """Return rows [B, 1 + P] with the parameters scaled to [-1, 1]."""
        return torch.cat([action[:, :1], (action[:, 1:] - self._centre) / self._half], dim=1)

    def _turns(self) -> tuple[bool, bool]:
        """Tell whether the update under way is one of the critic's, and one of the actor's."""
        cycle = int(self._cfg.learn.update_circle)
        is_critics = self._num_updates.now % cycle < (cycle + 1) // 2
        return is_critics, cycle == 1 or not is_critics

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of those networks whose turn it is; priorities are absolute TD errors [B]."""
        rows = self._rows(batch)
        is_critics, is_actors = self._turns()
        with torch.no_grad():
            next_value = self._critic.target(rows.next_obs, self._actor.target(rows.next_obs)).amax(dim=1)
            target = nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)
        choice, parameters = rows.action[:, :1].long(), rows.action[:, 1:]
        with torch.set_grad_enabled(is_critics):
            q = self._critic.network(rows.obs, parameters).gather(1, choice).squeeze(1)
            error = q - target
            critic_loss = (rows.weight * error.square()).mean()
        info = {"critic_loss": critic_loss.detach(), "q_value": q.detach(), "target_q_value": target}
        if is_critics:
            self._critic.backward(critic_loss)
        if is_actors:
            value = self._critic.network(rows.obs, self._actor.network(rows.obs)).sum(dim=1)
            info["actor_loss"] = self._actor.backward(-value.mean())
        return info, self._priority(error.unsqueeze(0))

    def apply(self) -> None:
        """Take an optimizer step of those networks whose turn it is, and move both targets."""
        turns = self._turns()
        self._end_update()
        for network, has_turn in zip((self._critic, self._actor), turns, strict=True):
            if has_turn:
                network.optimizer.step()
            network.move_target(self._cfg.learn.target_theta)

    def _networks(self) -> dict[str, TrainedNetwork]:
        return {"critic": self._critic, "actor": self._actor}

    monitored: tuple[str, ...] = ("critic_loss", "actor_loss", "q_value", "target_q_value")
