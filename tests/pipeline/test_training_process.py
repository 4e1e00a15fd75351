"""A process that trains uses one thread and flushes denormal numbers, and afterwards is as it was."""

from __future__ import annotations

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from ding_like.pipeline.process import training_process


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def is_flushed() -> bool:
    return bool((torch.full((), 1e-40) * 1.0) == 0)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_torch_and_numpy_have_as_many_threads_as_told(num_threads: int) -> None:
    with threadpool_limits(3 - num_threads), training_process(num_threads=num_threads):
        assert torch.get_num_threads() == num_threads
        assert blas_threads() == {num_threads}


def test_everything_is_set_back_after_an_error() -> None:
    before = torch.get_num_threads(), blas_threads(), is_flushed()

    with pytest.raises(KeyError), training_process():
        assert is_flushed()
        raise KeyError

    assert (torch.get_num_threads(), blas_threads(), is_flushed()) == before
