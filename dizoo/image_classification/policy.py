"""Classify images: a policy that learns from labels in place of rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.model.encoder import build_encoder
from ding_like.model.flat_params import FlatParams
from ding_like.model.optimizer import FlatOptimizer
from ding_like.policy import Policy
from ding_like.types import Array
from ding_like.utils.registries import MODEL_REGISTRY, POLICY_REGISTRY


@MODEL_REGISTRY.register("image_classifier")
class ImageClassifier(nn.Module):
    """Return a logit per class [B, K] for images [B, C, H, W]: convolutions, a dense layer, and the head."""

    def __init__(
        self,
        obs_shape: list[int],
        num_classes: int,
        *,
        hidden_size_list: list[int],
        kernel_size: list[int],
        stride: list[int],
    ) -> None:
        super().__init__()
        self.encoder = build_encoder(obs_shape, hidden_size_list, kernel_size=kernel_size, stride=stride)
        self.head = nn.Linear(self.encoder.output_size, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(images))
        return logits


# What the base class has for policies that act.
_OF_REWARDS = (
    *("priority", "priority_IS_weight", "discount_factor", "nstep", "random_collect_size"),
    *("action_space", "action_low", "action_high", "learn.update_per_collect", "learn.ignore_done"),
    *("collect.n_sample", "collect.n_episode", "collect.unroll_len"),
)


@POLICY_REGISTRY.register("image_classification")
class ImageClassificationPolicy(Policy):
    """Learn by cross entropy from batches with columns `obs` [B, ...] and `label` [B] int64."""

    action_spaces = ()  # it acts nowhere

    config: dict[str, Any] = dict(
        type="image_classification",
        # Two convolutions and a dense layer.
        model=dict(hidden_size_list=[32, 64, 128], kernel_size=[3, 3], stride=[1, 1]),
        learn=dict(
            batch_size=64,
            learning_rate=1e-3,
            # Passes over the training set.
            epochs=40,
        ),
    )

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        yield from cls._no_effect(cfg, _OF_REWARDS, "labels take the place of an env")

    def __init__(
        self, cfg: Mapping[str, Any], model: nn.Module | None = None, enable_field: Sequence[str] | None = None
    ) -> None:
        """Raise ConfigError for contradictions: the run in `digits.py` compiles no config that would be checked."""
        if faults := [f"policy.{path} {message}" for path, message in self.check_config(cfg)]:
            raise ConfigError("; ".join(faults))
        super().__init__(cfg, model, enable_field)

    def default_model(self) -> tuple[str, list[str]]:
        return "image_classifier", [__name__]

    def _init_learn(self) -> None:
        self._params = FlatParams(self._model)
        self._optimizer = FlatOptimizer.from_config(self._params, self._cfg.learn)

    def grad(self, batch: TransitionBatch) -> tuple[dict[str, Any], Array | None]:
        """Fill the gradient of the cross entropy."""
        self._params.follow()
        tensors = batch.to(self._device)
        logits = self._model(tensors["obs"])
        loss = F.cross_entropy(logits, tensors["label"])
        self._params.zero_grad()
        loss.backward()
        self._params.loss.copy_(loss.detach())
        return {"cur_lr": self._optimizer.learning_rate, "total_loss": loss.detach()}, None

    def apply(self) -> None:
        """Take one Adam step."""
        self._optimizer.step()

    def _optimizers(self) -> tuple[FlatOptimizer, ...]:
        return (self._optimizer,)

    def _forward_eval(self, images: Tensor) -> Tensor:
        """Return the logits [B, K] of images [B, C, H, W]."""
        logits: Tensor = self._model(images.to(self._device))
        return logits.cpu()

    def _state_dict_learn(self) -> dict[str, Any]:
        return {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def _load_state_dict_learn(self, state: Any) -> None:
        self._load_model(state["model"])
        if "optimizer" in state:
            self._optimizer.load_state_dict(state["optimizer"])
