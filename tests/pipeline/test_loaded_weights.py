"""Versions of the weights that a policy acts with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ding_like.comm.channels import Version, Weights
from ding_like.pipeline.collect import UNTRAINED, PolicyWeights


class Reader:
    """Reader of the weights that a test sets."""

    def __init__(self) -> None:
        self.weights: Weights | None = None

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        found = self.weights
        return None if found is None or (newer_than is not None and found.version <= newer_than) else found


def weights(update: int) -> Weights:
    return Weights("policy", Version(1, update), {"model/w": torch.tensor(float(update))})


def loaded(reader: Reader) -> tuple[PolicyWeights, list[float]]:
    acted: list[float] = []
    mode = SimpleNamespace(load_state_dict=lambda state: acted.append(float(state["model"]["w"])))
    policy: Any = SimpleNamespace(collect_mode=mode)
    return PolicyWeights(policy, reader), acted


def test_what_is_loaded_already_is_not_loaded_again() -> None:
    reader = Reader()
    own, acted = loaded(reader)
    own.take_newest()
    assert own.version == UNTRAINED

    reader.weights = weights(3)
    own.take_newest()
    own.take_newest()

    assert own.version == (1, 3) and acted == [3.0]


def test_collecting_goes_on_with_the_newest_after_an_evaluation_of_older_weights() -> None:
    reader = Reader()
    own, acted = loaded(reader)
    for update, take in ((5, own.take_newest), (2, own.take_asked), (5, own.take_newest)):
        reader.weights = weights(update)
        take()

    assert own.version == (1, 5) and acted == [5.0, 2.0, 5.0]
