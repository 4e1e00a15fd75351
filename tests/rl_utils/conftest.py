"""One thread for the small tensors of these tests, as in a training process."""

from collections.abc import Iterator

import pytest

from ding_like.pipeline.build import training_process


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with training_process():
        yield
