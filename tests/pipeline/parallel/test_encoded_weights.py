"""A parallel run whose weights are rounded acts with the rounded ones, and sends half the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.comm.rest import messages as m
from ding_like.comm.tensors import state_of
from tests.pipeline.parallel.runs import configs, running

WIDE = dict(encoder_hidden_size_list=[128, 128])


def train(folder: Path, config: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], Any, Any]:
    """Return the sizes of the files that were published, and the states of a collector and the learner at the end."""
    published: list[int] = []
    with running(folder, config, max_env_step=600, collectors=1) as run:
        run.cfg["weights"] = {"dtype": dtype, "delta": False}
        publish = run.service.publish

        def count(worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
            published.append(message.nbytes)
            return publish(worker_id, policy_id, message)

        monkeypatch.setattr(run.service, "publish", count)
        run.train()
        collector = run.collectors[0]._collector.policy  # type: ignore[union-attr]
        learner = run.learner.policy
        return published, state_of(collector.collect_mode), state_of(learner.collect_mode)


def test_bfloat16_halves_what_is_published_and_is_what_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configs("dqn", model=WIDE, random_collect_size=60, collect=dict(n_sample=16))
    sizes = {}
    for dtype in ("exact", "bfloat16"):
        published, acting, _ = train(tmp_path / dtype, config, dtype, monkeypatch)
        sizes[dtype] = set(published)
        is_rounded = [torch.equal(each, each.bfloat16().float()) for each in acting.values() if each.ndim == 2]
        assert all(is_rounded) if dtype == "bfloat16" else not any(is_rounded)

    assert len(sizes["exact"]) <= 2, "all versions are of one size, or their numbers have one digit more"
    assert max(sizes["bfloat16"]) < 0.52 * min(sizes["exact"])
