"""Seed torch, whose global generator initialises networks; one thread, as in a training process."""

from collections.abc import Iterator

import pytest
import torch

from ding_like.pipeline.build import training_process


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with training_process():
        yield
