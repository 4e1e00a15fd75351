"""Learners with a GPU each average gradients by nccl, and say which of them is lost. Runs where there are two GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.comm.test_learner_group import command, processes, said

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs: each learner has one of its own"),
]


def test_gradients_on_gpus_travel_by_nccl(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with processes([command(store, rank, "average_on_gpu") for rank in range(2)]) as ranks:
        found = [said(each)["result"] for each in ranks]

    assert found == [
        {"backend": "cpu:gloo,cuda:nccl", "device": f"cuda:{rank}", "mean": [1.75] * 3} for rank in range(2)
    ]


def test_a_killed_learner_on_a_gpu_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with processes([command(store, rank, "average_on_gpu_until_failure", timeout_s=10) for rank in range(2)]) as ranks:
        assert ranks[1].stdout.readline() == b"joined\n"
        ranks[1].kill()

        assert said(ranks[0])["error"].startswith("learner rank 1 of 2 has not answered for ")
