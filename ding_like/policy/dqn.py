"""Deep Q-learning (Mnih et al. 2015) with its usual additions.

They are double Q-learning (van Hasselt et al. 2016), dueling heads (Wang et al. 2016, in the model), n-step returns and
importance weights (Schaul et al. 2016). A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum
of its rewards. The loss is

    y    = R + discount * Q_target(next_obs, argmax_a Q(next_obs, a))     second part only if not terminated
    loss = mean(weight * huber(Q(obs, action) - y))
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.data.obs import split_mask
from ding_like.model.flat_params import FlatParams
from ding_like.model.numpy_grad import NumpyGrad, can_differentiate
from ding_like.policy.base import Policy
from ding_like.policy.choose import EpsilonGreedy
from ding_like.policy.forward import ForwardActor, NetworkForward
from ding_like.policy.optimizer import FlatOptimizer
from ding_like.rl_utils.exploration import get_epsilon_greedy_fn
from ding_like.rl_utils.td import legal_value, nstep_td_target, q_td_error, q_td_error_grad
from ding_like.types import Array
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("dqn")
class DQNPolicy(Policy):
    """Learn Q values of discrete actions off-policy."""

    config: dict[str, Any] = dict(
        type="dqn",
        priority=False,
        priority_IS_weight=False,
        discount_factor=0.97,
        nstep=1,
        # Let the online network choose and the target network judge the next action.
        double=True,
        learn=dict(
            update_per_collect=3,
            batch_size=64,
            learning_rate=1e-3,
            # Updates between two copies of the online network into the target network.
            target_update_freq=100,
            # Share of the online network mixed into the target after every update; replaces target_update_freq.
            target_theta=None,
            loss="mse",
            # How gradients are computed: "autograd", or "auto": by hand in numpy where the model is a small MLP.
            backend="auto",
        ),
        collect=dict(n_sample=8, unroll_len=1),
        other=dict(
            # 'exp': decay is a time constant in env steps; 'linear': the env step where `end` is reached.
            eps=dict(type="exp", start=0.95, end=0.1, decay=10000),
            replay_buffer=dict(replay_buffer_size=10000),
        ),
    )
    config_types = {**Policy.config_types, "learn.target_theta": (float, int)}
    config_alternatives = (*Policy.config_alternatives, ("learn.target_update_freq", "learn.target_theta"))

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["learn"]["loss"] not in ("mse", "huber"):
            yield "learn.loss", f"must be 'mse' or 'huber', got {cfg['learn']['loss']!r}"
        if cfg["learn"]["backend"] not in ("auto", "autograd"):
            yield "learn.backend", f"must be 'auto' or 'autograd', got {cfg['learn']['backend']!r}"
        if cfg["other"]["eps"]["type"] not in ("exp", "linear"):
            yield "other.eps.type", f"must be 'exp' or 'linear', got {cfg['other']['eps']['type']!r}"

    def default_model(self) -> tuple[str, list[str]]:
        return "dqn", []

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._target_model = copy.deepcopy(self._model)
        self._params = FlatParams(self._model)
        self._target_params = FlatParams(self._target_model)
        self._optimizer = FlatOptimizer.from_config(self._params, learn)
        # After FlatParams, which moves the weights.
        self._online_q = self._forward(self._model)
        self._target_q = self._forward(self._target_model)
        by_hand = learn.backend == "auto" and can_differentiate(self._model)
        self._by_hand = NumpyGrad(self._model, self._params) if by_hand else None
        self._num_updates = 0

    def _forward(self, model: Any) -> NetworkForward:
        """Return what computes the action values of a model, any with a method `q`."""
        return NetworkForward(model.q, model, self._device)

    def _init_collect(self) -> None:
        self._collect_actor = ForwardActor(self._forward(self._model), EpsilonGreedy())

    def _init_eval(self) -> None:
        self._eval_actor = ForwardActor(self._forward(self._model), EpsilonGreedy())

    def _init_command(self) -> None:
        eps = self._cfg.other.eps
        self._epsilon = get_epsilon_greedy_fn(eps.start, eps.end, eps.decay, eps.type)

    def grad(self, batch: TransitionBatch) -> tuple[dict[str, Any], Array | None]:
        """Fill the gradient of the TD loss for rows of a replay buffer; priorities are absolute TD errors [B]."""
        self._params.follow()
        next_value = self._next_value(batch)
        if self._by_hand is not None and isinstance(batch["reward"], np.ndarray):
            return self._grad_by_hand(self._by_hand, batch, next_value.numpy())
        tensors = batch.to(self._device)
        terminated = tensors["terminated"]
        if self._cfg.learn.ignore_done:
            terminated = torch.zeros_like(terminated)
        discount = tensors.columns.get("discount", self._gamma)
        target = nstep_td_target(tensors["reward"], next_value, discount=discount, terminated=terminated)
        q = self._model.q(split_mask(self._obs(tensors))[0])
        error = q_td_error(q, tensors["action"], target, weight=self._weight(tensors), loss=self._cfg.learn.loss)
        self._params.zero_grad()
        error.loss.backward()
        loss = error.loss.detach()
        self._params.loss.copy_(loss)
        info = {**self._lr_and_loss(loss), "q_value": q.detach(), "target_q_value": target}
        return info, error.abs_error.cpu().numpy() if self._cfg.priority else None

    def _grad_by_hand(
        self, model: NumpyGrad, batch: TransitionBatch, next_value: Array
    ) -> tuple[dict[str, Any], Array | None]:
        """Do what `grad` does, in numpy: for small networks several times faster."""
        goes_on = True if self._cfg.learn.ignore_done else ~batch["terminated"]
        discount = batch.columns.get("discount", self._gamma)
        # where and not a product: the value of a state after the end is never learned, and may be anything.
        target = batch["reward"] + discount * np.where(goes_on, next_value, np.float32(0.0))
        q = model.forward(split_mask(self._obs(batch))[0])
        loss, q_grad, abs_error = q_td_error_grad(
            q, batch["action"], target, weight=self._weight(batch), loss=self._cfg.learn.loss
        )
        model.backward(q_grad)
        self._params.loss.fill_(loss)
        info = {
            **self._lr_and_loss(torch.tensor(loss)),
            "q_value": torch.from_numpy(q),
            "target_q_value": torch.from_numpy(target),
        }
        return info, abs_error if self._cfg.priority else None

    def _lr_and_loss(self, loss: torch.Tensor) -> dict[str, Any]:
        return {"cur_lr": self._optimizer.learning_rate, "total_loss": loss}

    def _next_value(self, batch: TransitionBatch) -> torch.Tensor:
        """Return the value [B] of each row's next observation: the best legal action's, by the target network."""
        next_obs, mask = split_mask(self._obs(batch, "next_obs"))
        next_q = self._target_q.tensor(next_obs)
        judge = self._online_q.tensor(next_obs) if self._cfg.double else next_q
        return legal_value(judge, next_q, mask)

    def apply(self) -> None:
        """Take one Adam step and move the target network by period or by momentum."""
        self._optimizer.step()
        self._num_updates += 1
        learn = self._cfg.learn
        if learn.target_theta is not None:
            self._target_params.lerp_from(self._params, learn.target_theta)
        elif self._num_updates % learn.target_update_freq == 0:
            self._target_params.copy_from(self._params)

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return (self._optimizer,)

    def _grad_modules(self) -> dict[str, torch.nn.Module]:
        return {**super()._grad_modules(), "target": self._target_model}

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "q_value", "target_q_value"]

    def _get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return epsilon for the env step in `info`."""
        return {"eps": self._epsilon(int(info["envstep"]))}

    def _state_dict_learn(self) -> dict[str, Any]:
        return {
            "model": self._model.state_dict(),
            "target_model": self._target_model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "num_updates": self._num_updates,
        }

    def _load_state_dict_learn(self, state: Mapping[str, Any]) -> None:
        self._load_model(state["model"])
        self._target_model.load_state_dict(state.get("target_model", state["model"]))
        # A checkpoint of weights alone (a pre-trained model) starts with a fresh optimizer.
        if "optimizer" in state:
            self._optimizer.load_state_dict(state["optimizer"])
        self._num_updates = state.get("num_updates", 0)
