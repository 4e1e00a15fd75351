"""Update of algorithms that learn action values off-policy, from a replay buffer.

A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum of its rewards. An update is

    target = R + discount * next               _td_target: `next`, a value or distribution, is what _next_value says of
                                               next_obs; the second part only if not terminated
    chosen = Q(obs, action)                    _chosen
    loss   = mean(weight * (compare(chosen, target) + more))           _row_loss; _added_loss is 0, unless an algorithm
                                                                       has more

An algorithm replaces the methods named here. What is predicted, added and compared is its family's to know
(`rl_utils/value_family.py`). Where network and family are plain enough, the gradient is computed by hand in numpy: for
small networks several times faster than by autograd.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch, columns_to, split_mask
from ding_like.errors import ConfigError
from ding_like.model.flat_params import FlatParams
from ding_like.model.layers import ObsTensor, factor_noise
from ding_like.model.numpy_networks import NumpyGrad, can_differentiate
from ding_like.model.optimizer import FlatOptimizer
from ding_like.policy.base import Policy
from ding_like.policy.forward import Choose, EpsilonGreedy, ForwardActor, NetworkForward
from ding_like.policy.sharing import GradNoise, Moving
from ding_like.rl_utils.exploration import factorised_noise, get_epsilon_greedy_fn
from ding_like.rl_utils.value_family import ByHand, RowLoss, ScalarValue, ValueFamily, weighted_mean
from ding_like.types import Array, Config, Info, State
from ding_like.utils.bounds import FROM_1, SHARE, SHARE_ABOVE_0, Bounds


class EpsilonPolicy(Policy):
    """Policy whose collectors act at random with the epsilon of `other.eps` (type, start, end, decay)."""

    config: dict[str, Any] = dict(
        other=dict(
            eps=dict(
                # How the probability of a random action falls: "exp" or "linear".
                type="exp",
                # Probability of a random action at the first env step.
                start=0.95,
                # Probability of a random action in the end.
                end=0.1,
                # Env steps: the time constant of "exp", or where "linear" reaches `end`.
                decay=10000,
            ),
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "other.eps.start": SHARE,
        "other.eps.end": SHARE,
        "other.eps.decay": FROM_1,
    }

    config_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"other.eps.type": ("exp", "linear")}

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["other"]["eps"]["start"] < cfg["other"]["eps"]["end"]:
            yield "other.eps.start", "is less than eps.end: exploration would grow. Swap start and end"

    def _init_command(self) -> None:
        eps = self._cfg.other.eps
        self._epsilon = get_epsilon_greedy_fn(eps.start, eps.end, eps.decay, eps.type)

    def _get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return epsilon for the env step in `info`."""
        return {"eps": self._epsilon(int(info["envstep"]))}


class ValueBasedPolicy(EpsilonPolicy):
    """Values of discrete actions, learned off-policy; epsilon-greedy, with a target network."""

    config: dict[str, Any] = dict(
        # Double DQN: the online network chooses the next action, the target network judges it.
        double=True,
        learn=dict(
            update_per_collect=3,
            # Updates between two copies of the online network into the target network.
            target_update_freq=100,
            # Share of the online network that is mixed into the target network after every update; replaces
            # target_update_freq.
            target_theta=None,
            # Loss of a TD error: "mse" or "huber".
            loss="mse",
            # How gradients are computed: "autograd", or "auto": by hand in numpy where the model is a small MLP.
            backend="auto",
        ),
        collect=dict(n_sample=8),
        other=dict(replay_buffer=dict(replay_buffer_size=10000)),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.target_update_freq": FROM_1,
        "learn.target_theta": SHARE_ABOVE_0,
    }
    config_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "learn.loss": ("mse", "huber"),
        "learn.backend": ("auto", "autograd"),
    }
    config_alternatives = (*Policy.config_alternatives, ("learn.target_update_freq", "learn.target_theta"))

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["learn"]["target_update_freq"] is None and cfg["learn"]["target_theta"] is None:
            text = "is None as learn.target_theta is: the target network would never change; give 1 or more updates"
            yield "learn.target_update_freq", text

    # ---- what an algorithm replaces. Any: a family's predictions are tensors, or what it makes of several

    @cached_property
    def _family(self) -> ValueFamily[Any]:
        """Say what the network predicts: expected returns, or distributions of them."""
        return ScalarValue(self._cfg.learn.loss)

    def _td_target(self, rows: TransitionBatch) -> Any:
        """Return the targets [B, ...] of rows, a batch of tensors; called without a gradient."""
        next_value = self._next_value(*split_mask(self._obs(rows, "next_obs")))
        return self._family.backup(rows["reward"], next_value, **self._following(rows))

    def _following(self, rows: TransitionBatch) -> dict[str, Any]:  # tensors, arrays or a number
        """Return `discount` and `terminated`: how much of what follows rows, of tensors or arrays, counts."""
        terminated = rows["terminated"]
        return {
            "discount": rows.columns.get("discount", self._gamma),
            "terminated": terminated & False if self._cfg.learn.ignore_done else terminated,
        }

    # Any: tensors, in a dict or not.
    def _next_value(self, next_obs: Any, mask: Any) -> Any:
        """Return what next observations are worth [B, ...], of those actions that `mask` marks as legal."""
        raise NotImplementedError(f"{type(self).__name__} must say what next observations are worth: _next_value().")

    def _chosen(self, rows: TransitionBatch) -> tuple[Any, Tensor]:
        """Return (what the network predicts of rows' actions [B, ...], with a gradient; the values to log)."""
        prediction = self._predict(split_mask(self._obs(rows))[0])
        return self._family.of_action(prediction, rows["action"]), self._family.expected(prediction)

    def _row_loss(self, rows: TransitionBatch, target: Any) -> tuple[RowLoss, Tensor]:
        """Return (the loss of each row, given its target, with a gradient; the values to log)."""
        chosen, values = self._chosen(rows)
        each = self._family.loss(chosen, target)
        return each._replace(loss=each.loss + self._added_loss(rows, values)), values

    def _added_loss(self, rows: TransitionBatch, values: Tensor) -> Tensor | float:
        """Return what is added to the loss of each row [B], given the values of all actions, with a gradient."""
        return 0.0

    # Any: observations as the model takes them; what the family predicts.
    def _predict(self, obs: ObsTensor) -> Any:
        """Return what the network predicts of rows' observations, with a gradient."""
        return _predicted(self._family, self._model, obs, self._weight_noise())

    def _predict_by_hand(self, model: NumpyGrad, obs: Array) -> Array:
        """Do what `_predict` does, in numpy."""
        noise = self._weight_noise()
        return model.forward(obs, None if noise is None else noise.numpy())

    @property
    def _draws(self) -> bool:
        """Tell whether `grad` draws random numbers; they come from `self._noise` then, which is None otherwise."""
        return bool(getattr(self._model, "noise_size", 0))

    def _weight_noise(self) -> Tensor | None:
        """Return noise [P] for one use of a noisy network, which all learners draw alike; None: it takes none."""
        return None if self._noise is None else factor_noise(self._noise.normal(self._model.noise_size))

    # ---- acting

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        # Partial and not lambda: a deep copy must run the copied network.
        expected = partial(_expected, self._family, self._model)
        twin = self._numpy_twin(self._model)
        # Any: it is a ByHand where there is a twin.
        family: Any = self._family
        then = None if twin is None else family.expected_by_hand
        values = NetworkForward(expected, twin, self._device, then=then)
        draw_noise = partial(factorised_noise, size=self._model.noise_size) if explores and self._draws else None
        return ForwardActor(values, self._choice(explores=explores), draw_noise=draw_noise)

    def _choice(self, *, explores: bool) -> Choose:
        """Return how an action is chosen among its values."""
        return EpsilonGreedy()

    def _numpy_twin(self, model: nn.Module) -> nn.Module | None:
        """Return the model if what its family predicts is what the model gives, which numpy may compute then."""
        return model if isinstance(self._family, ByHand) else None

    # ---- learning

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._target_model = copy.deepcopy(self._model)
        self._params, self._target_params = (
            FlatParams(self._value_network(model)) for model in (self._model, self._target_model)
        )
        self._moved = [(self._params, self._target_params)]
        self._optimizer = FlatOptimizer.from_config(self._params, learn)
        # After FlatParams, which moves the weights.
        self._online, self._target = (self._predictions(model) for model in (self._model, self._target_model))
        self._by_hand = self._numpy_gradient()
        # An algorithm's own target is of tensors, even where its gradient is numpy's.
        self._has_plain_target = type(self)._td_target is ValueBasedPolicy._td_target
        self._noise = GradNoise(self._device) if self._draws else None
        self._num_updates = 0

    def _value_network(self, model: nn.Module) -> nn.Module:
        """Return the part of a model that the loss of values trains: all of it, or an algorithm says what else does."""
        return model

    def _predictions(self, model: nn.Module) -> NetworkForward:
        return NetworkForward(partial(_predicted, self._family, model), self._numpy_twin(model), self._device)

    # Any: what `_fill_by_hand` takes, which an algorithm may bring with it.
    def _numpy_gradient(self) -> Any:
        """Return what computes the gradient by hand; None: autograd does."""
        return NumpyGrad(self._model, self._params) if self._is_plain() else None

    def _is_plain(self) -> bool:
        """Tell whether the gradient may be computed by hand: an algorithm's own `_chosen` or loss is autograd's."""
        own, base = type(self), ValueBasedPolicy
        is_own = any(getattr(own, name) is not getattr(base, name) for name in ("_chosen", "_row_loss", "_added_loss"))
        known = self._cfg.learn.backend == "auto" and isinstance(self._family, ByHand) and not is_own
        return known and can_differentiate(self._model)

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for rows of a replay buffer; return (what to log, priorities [B] or None)."""
        if self._noise is not None:
            self._noise.begin()
        if self._by_hand is not None and isinstance(batch["reward"], np.ndarray):
            loss, values, target, priority = self._fill_by_hand(self._by_hand, batch)
        else:
            loss, values, target, priority = self._fill(batch.to(self._device))
        info = {
            "cur_lr": self._optimizer.learning_rate,
            "total_loss": loss,
            "q_value": values,
            "target_q_value": self._family.expected_target(target),
        }
        return info, priority

    # Any: what the family makes of targets.
    def _fill(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Any, Array | None]:
        """Fill the gradient by autograd; return (loss, values to log, targets, priorities [B] if they are wanted)."""
        self._params.follow()
        with torch.no_grad():
            target = self._td_target(rows)
        each, values = self._row_loss(rows, target)
        loss = self._params.backward(weighted_mean(each.loss, self._weight(rows)))
        return loss, values.detach(), target, np.asarray(each.priority.cpu()) if self._cfg.priority else None

    # Any: what the family makes of targets.
    def _fill_by_hand(self, model: NumpyGrad, rows: TransitionBatch) -> tuple[Tensor, Tensor, Any, Array | None]:
        """Do what `_fill` does, in numpy."""
        # Any: it is a ByHand, known since the policy was made; to ask a protocol again takes longer than the loss.
        family: Any = self._family
        target = self._td_target_by_hand(family, rows)
        output = self._predict_by_hand(model, split_mask(self._obs(rows))[0])
        each = family.loss_by_hand(output, rows["action"], target, weight=self._weight(rows))
        model.backward(each.grad)
        loss = self._params.loss.fill_(each.loss).clone()  # a third of the time of torch.tensor
        values = torch.from_numpy(family.expected_by_hand(output))
        return loss, values, torch.from_numpy(target), each.priority if self._cfg.priority else None

    def _td_target_by_hand(self, family: ByHand, rows: TransitionBatch) -> Array:
        """Do what `_td_target` does, in numpy; an algorithm's own methods are given tensors all the same."""
        with torch.no_grad():
            if not self._has_plain_target:
                return cast(Array, self._td_target(rows.to(self._device)).numpy())
            obs = self._obs(rows, "next_obs")
            obs = columns_to("cpu", obs) if isinstance(obs, dict) else torch.from_numpy(obs)
            next_value = self._next_value(*split_mask(obs)).numpy()
        return family.backup_by_hand(rows["reward"], next_value, **self._following(rows))

    def apply(self) -> None:
        """Take one optimizer step and move the target network by period or by momentum."""
        self._optimizer.step()
        self._num_updates += 1
        if self._noise is not None:
            self._noise.commit()
        learn = self._cfg.learn
        for online, target in self._moved:
            if learn.target_theta is not None:
                target.lerp_from(online, learn.target_theta)
            elif self._num_updates % learn.target_update_freq == 0:
                target.copy_from(online)

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return (self._optimizer,)

    def _grad_modules(self) -> dict[str, nn.Module]:
        return {"model": self._model, "target": self._target_model}

    def _moving(self) -> dict[str, Moving]:
        return {} if self._noise is None else {"generator": self._noise}

    def _saved(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer}

    monitored: tuple[str, ...] = ("cur_lr", "total_loss", "q_value", "target_q_value")

    def _state_dict_learn(self) -> State:
        target = self._target_model.state_dict()
        return {**super()._state_dict_learn(), "target_model": target, "num_updates": self._num_updates}

    def _load_state_dict_learn(self, state: State) -> None:
        super()._load_state_dict_learn(state)
        self._target_model.load_state_dict(state.get("target_model", state["model"]))
        self._num_updates = state.get("num_updates", 0)


def attributes_of(model: nn.Module, *names: str, policy: str) -> list[Any]:  # Any: numbers, which a family checks
    """Return what a model says of its output; raises ConfigError if it does not."""
    missing = [name for name in names if not hasattr(model, name)]
    if missing:
        raise ConfigError(
            f"policy '{policy}' reads {', '.join(names)} off its model, but {type(model).__name__} has no "
            f"{', '.join(missing)}; set them in its __init__, or leave policy.model.type out"
        )
    return [getattr(model, name) for name in names]


# Any: a model that takes noise only where there is some, and what its family predicts.
def _predicted(family: ValueFamily[Any], model: Any, obs: ObsTensor, noise: Tensor | None = None) -> Any:
    return family.predict(model if noise is None else model.under(noise), obs)


def _expected(family: ValueFamily[Any], model: Any, obs: ObsTensor, noise: Tensor | None = None) -> Tensor:
    return family.expected(_predicted(family, model, obs, noise))
