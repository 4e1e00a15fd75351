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
from ding_like.model.numpy_forward import numpy_forward
from ding_like.model.numpy_grad import NumpyGrad, can_differentiate
from ding_like.policy.base import Policy
from ding_like.policy.optimizer import FlatOptimizer
from ding_like.rl_utils.exploration import epsilon_greedy, get_epsilon_greedy_fn, greedy_action
from ding_like.rl_utils.td import legal_value, nstep_td_target, q_td_error, q_td_error_grad
from ding_like.types import Array, Obs, State
from ding_like.utils.registries import POLICY_REGISTRY


class QValues:
    """Compute Q values without a gradient, from arrays or tensors."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self._model = model  # a module with `q(obs) -> [B, A]`
        self._device = device
        # Small MLPs on the CPU run on live numpy views of the weights, faster than through torch.
        self._fast = numpy_forward(model) if device.type == "cpu" else None

    def __call__(self, obs: Any) -> torch.Tensor:
        """Return [B, A] on the device, for observations [B, ...] or a dict of them."""
        if self._fast is not None and isinstance(obs, np.ndarray):
            return torch.from_numpy(self._fast(obs))
        with torch.no_grad():
            values: torch.Tensor = self._model.q(self._to_device(obs))
        return values

    def as_array(self, obs: Obs) -> Array:
        """Return [B, A] on the host."""
        if self._fast is not None and not isinstance(obs, dict):
            return self._fast(obs)
        values: Array = self(obs).cpu().numpy()
        return values

    def _to_device(self, obs: Any) -> Any:
        if isinstance(obs, dict):
            return {key: self._to_device(value) for key, value in obs.items()}
        return torch.as_tensor(obs, device=self._device)


class QActor:
    """Pick the best action by Q value, or a random one with probability `eps`, drawn per lane."""

    def __init__(self, q_values: QValues) -> None:
        self._q_values = q_values

    def act(
        self,
        obs: Obs,
        *,
        lanes: Array,
        is_first: Array,
        rng: np.random.Generator,
        eps: float | Array = 0.0,
        **_: Any,
    ) -> dict[str, Array]:
        """Return `action` [R] int64; `eps` is one probability, or one per lane [R].

        Of a dict observation, the entry `action_mask` [R, A] says which actions are legal.
        """
        obs, mask = split_mask(obs)
        q = self._q_values.as_array(obs)
        greedy = greedy_action(q, mask)
        if isinstance(eps, float) and eps == 0.0:
            return {"action": greedy}
        return {"action": epsilon_greedy(greedy, eps, num_actions=q.shape[1], rng=rng, action_mask=mask)}

    def reset(self, lanes: Array | None = None) -> None:
        """Forget nothing: a feed-forward network has no state."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing: there is no state."""


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
        self._online_q = QValues(self._model, self._device)
        self._target_q = QValues(self._target_model, self._device)
        by_hand = learn.backend == "auto" and can_differentiate(self._model)
        self._by_hand = NumpyGrad(self._model, self._params) if by_hand else None
        self._num_updates = 0
        self._loss = torch.zeros(())

    def _init_collect(self) -> None:
        self._collect_actor = QActor(QValues(self._model, self._device))

    def _init_eval(self) -> None:
        self._eval_actor = QActor(QValues(self._model, self._device))

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
        self._loss = error.loss.detach()
        info = {**self._lr_and_loss(), "q_value": q.detach(), "target_q_value": target}
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
        self._loss = torch.tensor(loss)
        info = {**self._lr_and_loss(), "q_value": torch.from_numpy(q), "target_q_value": torch.from_numpy(target)}
        return info, abs_error if self._cfg.priority else None

    def _lr_and_loss(self) -> dict[str, Any]:
        return {"cur_lr": self._optimizer.learning_rate, "total_loss": self._loss}

    def _next_value(self, batch: TransitionBatch) -> torch.Tensor:
        """Return the value [B] of each row's next observation: the best legal action's, by the target network."""
        next_obs, mask = split_mask(self._obs(batch, "next_obs"))
        next_q = self._target_q(next_obs)
        judge = self._online_q(next_obs) if self._cfg.double else next_q
        return legal_value(judge, next_q, mask)

    def apply(self) -> None:
        """Take one Adam step and move the target network by period or by momentum."""
        self._optimizer.step(self._loss)
        self._num_updates += 1
        learn = self._cfg.learn
        if learn.target_theta is not None:
            self._target_params.lerp_from(self._params, learn.target_theta)
        elif self._num_updates % learn.target_update_freq == 0:
            self._target_params.copy_from(self._params)

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return (self._optimizer,)

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
