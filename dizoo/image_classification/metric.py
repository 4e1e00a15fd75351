"""Measure a classifier: the share of images whose label is the most likely class, and the cross entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor

from ding_like.worker import IMetric


class ClassificationMetric(IMetric):
    """FinalEvaluation logits [B, K] by labels [B]: `accuracy` from 0 to 1, which decides, and `loss` in nats."""

    def eval(self, inputs: Tensor, label: Tensor) -> dict[str, float]:
        accuracy = (inputs.argmax(dim=1) == label).float().mean()
        return {"accuracy": float(accuracy), "loss": float(F.cross_entropy(inputs, label))}

    def reduce_mean(self, inputs: Sequence[Mapping[str, float]]) -> dict[str, float]:
        return {name: sum(each[name] for each in inputs) / len(inputs) for name in inputs[0]}

    def gt(self, metric1: Mapping[str, float] | None, metric2: Mapping[str, float] | None) -> bool:
        if metric2 is None:
            return True
        return metric1 is not None and metric1["accuracy"] > metric2["accuracy"]
