"""Behavioural cloning: an actor learns to do what an expert did, as supervised learning (Pomerleau 1991).

A row is (obs, action) of an expert; rewards and next observations are not used. Of discrete actions the model gives
logits, and the loss is the cross entropy of the expert's actions, with eps = `learn.ce_label_smooth` (Szegedy et al.
2016)

    loss = mean(-(1 - eps) log pi(action|obs) - eps * mean over legal a of log pi(a|obs))

summed over the choices where there are several at once. Of continuous actions the model gives means mu(obs), and with
`loss_type` 'nll_loss' deviations too. With u the expert's action in units where the bounds are -1 and 1, the losses are

    'mse_loss'   mean((mu(obs) - u)^2)
    'l1_loss'    mean(|mu(obs) - u|)
    'nll_loss'   mean(-log N(u; mu(obs), sigma(obs)))

The actor takes the most likely action, the mean. `ding -m serial_offline` learns from a file of demonstrations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.errors import ConfigError, SchemaError
from ding_like.model.flat_params import FlatParams
from ding_like.model.optimizer import FlatOptimizer
from ding_like.model.vac import num_outputs
from ding_like.policy.base import Policy
from ding_like.policy.forward import ForwardActor, NetworkForward, OfFamily
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offline import FromData
from ding_like.rl_utils.distributions import (
    ActionFamily,
    Categorical,
    Gaussian,
    MultiCategorical,
    allowed_logits,
    build_family,
)
from ding_like.types import Array, Info
from ding_like.utils.bounds import Bounds
from ding_like.utils.log import one_time_warning
from ding_like.utils.registries import POLICY_REGISTRY

_SMOOTHED = 0.1  # what `ce_label_smooth=True` means


class Imitation(Policy):
    """Actor that learns an expert's actions; a subclass says where the rows come from."""

    model_methods: tuple[ModelMethod, ...] = (ModelMethod("actor", gives=("B P",)),)
    config: dict[str, Any] = dict(
        # Loss of continuous actions: "mse_loss" or "l1_loss" of the mean, or "nll_loss" of a Gaussian.
        loss_type="mse_loss",
        # Whether actions are continuous: a key of DI-engine's configs, see `without_effect`.
        continuous=None,
        learn=dict(
            # Share of its target that cross entropy gives to all legal actions evenly; True is 0.1.
            ce_label_smooth=0.0,
            # Whether the share of equal actions is logged: a key of DI-engine's configs, see `without_effect`.
            show_accuracy=True,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.ce_label_smooth": Bounds(0, 1)}
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {
        "continuous": (bool,),
        "learn.ce_label_smooth": (bool, int, float),
    }
    config_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"loss_type": ("mse_loss", "l1_loss", "nll_loss")}
    config_unused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("discount_factor", "learn.ignore_done", "nstep"), "the policy learns actions, and no values"
    )
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "priority": (False, "an expert's rows have none"),
    }
    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "action_space": ("discrete", ("loss_type", "action_low", "action_high")),
    }
    without_effect: ClassVar[dict[str, str]] = {
        "continuous": "the env says whether its actions are continuous",
        "learn.show_accuracy": "it is always logged",
    }
    action_spaces: tuple[str, ...] | None = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
    model_name = "bc"

    def _build_model(self) -> nn.Module:
        model = self._cfg.model
        if model.get("type", self.model_name) == self.model_name:
            model.setdefault("action_space", self._cfg.action_space or "discrete")
            if self._cfg.loss_type != "nll_loss":  # a sigma that nothing trains
                model.setdefault("sigma_type", "fixed")
        return super()._build_model()

    def _model_sizes(self) -> dict[str, int]:
        shape, kind = self._cfg.model.get("action_shape"), self._cfg.action_space or "discrete"
        return {} if shape is None else {**super()._model_sizes(), "P": num_outputs(shape, action_space=kind)}

    @cached_property
    def _family(self) -> ActionFamily:
        cfg = self._cfg
        if (shape := cfg.model.get("action_shape")) is None:
            raise ConfigError("policy.model.action_shape is not set: the policy must know how many actions there are.")
        kind = cfg.action_space or "discrete"
        idle = ("learn.ce_label_smooth",) if kind == "continuous" else ("loss_type", "action_low", "action_high")
        # The config was checked before the env said what its actions are.
        for path, message in self._no_effect(cfg, idle, f"actions are {kind}"):
            one_time_warning(f"policy.{path} {message}.")
        return build_family(kind, shape, low=cfg.action_low, high=cfg.action_high)

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        stack = self._model.stack() if hasattr(self._model, "stack") else None
        return ForwardActor(
            NetworkForward(self._model.actor, stack, self._device), OfFamily(self._family, is_greedy=True)
        )

    def why_no_reward_model(self) -> str | None:
        """Return why rows cannot be given other rewards: none are learned from."""
        return "it learns an expert's actions, and from no rewards"

    # ---- learning

    _labels = "action"  # column with what is learned

    def _init_learn(self) -> None:
        self._params = FlatParams(self._model)
        self._optimizer = FlatOptimizer.from_config(self._params, self._cfg.learn)

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for a minibatch of an expert's rows."""
        if self._labels not in batch.columns:
            raise SchemaError(
                f"rows have no column '{self._labels}', the expert's actions: their collector was given no expert."
            )
        names = [name for name in batch.columns if name in ("obs", self._labels) or name.startswith("obs/")]
        rows = batch.select(names).to(self._device)
        self._params.follow()
        obs, mask = split_mask(self._obs(rows))
        output, action = allowed_logits(self._model.actor(obs), mask), rows[self._labels]
        of_each = self._loss(output, action)
        loss = self._params.backward(of_each.mean())
        return {"total_loss": loss, **self._agreement(output.detach(), action)}, None

    def _loss(self, output: Tensor, action: Tensor) -> Tensor:
        """Return the loss [B] of each row, for the actor's output [B, P] and the expert's actions."""
        family = self._family
        if isinstance(family, Gaussian):
            raw, kind = family.raw_of(action), self._cfg.loss_type
            if kind == "nll_loss":
                return -family.log_prob_and_entropy(output, raw)[0]
            error = output[:, : raw.shape[1]] - raw
            return (error.square() if kind == "mse_loss" else error.abs()).mean(dim=1)
        loss = -family.log_prob_and_entropy(output, action.long())[0]
        smooth = self._cfg.learn.ce_label_smooth
        share = _SMOOTHED if smooth is True else float(smooth)
        if not share:
            return loss
        assert isinstance(family, (Categorical, MultiCategorical)), "hybrid actions are refused"
        return (1.0 - share) * loss - share * family.mean_log_prob(output)

    def _agreement(self, output: Tensor, action: Tensor) -> dict[str, Tensor]:
        """Return the share of rows whose action is the expert's, of continuous ones the mean distance."""
        own = self._family.mode_of(output)
        if isinstance(self._family, Gaussian):
            return {"action_error": (own - action).abs().mean()}
        return {"accuracy": (own == action).reshape(len(action), -1).all(dim=1).float().mean()}

    def apply(self) -> None:
        """Take one step of the optimizer."""
        self._optimizer.step()

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return (self._optimizer,)

    def _saved(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer}

    monitored: tuple[str, ...] = (*Policy.monitored, "accuracy", "action_error")


@POLICY_REGISTRY.register("bc")
class BCPolicy(FromData, Imitation):
    """Behavioural cloning of the demonstrations in a file."""

    config: dict[str, Any] = dict(type="bc", learn=dict(train_epoch=20))
    config_unused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("random_collect_size", "learn.update_per_collect", "learn.data_share"),
            *("collect.n_sample", "collect.n_episode"),
        ),
        "nothing is collected: rows come from a file",
    )
    goes_online = False
