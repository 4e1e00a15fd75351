"""The program of docs/ray_parts.md, whose parts are plain torch, collects, learns and updates."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.ray import CWorker, CWorkerSet, GWorkerSet, Scheme, UWorker

PAGE = Path(__file__).parents[3] / "docs" / "ray_parts.md"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the page's program as a module."""
    [text] = [each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S) if "Storage" in each]
    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain_parts.py").write_text(text)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("plain_parts")
    sys.path.remove(str(folder))
    del sys.modules["plain_parts"]


def parts_of(plain: Any) -> tuple[Any, ...]:
    return plain.ActorCritic, plain.make_actor, plain.make_storage, plain.make_envs


def test_it_learns_in_one_process(plain: Any) -> None:
    scheme = Scheme(*parts_of(plain))
    worker, rewards = scheme.update_worker, []
    try:
        while scheme.env_step < 12_000:
            info = worker.step()
            rewards += [info["Episodes"]["TrainReward"]] if "Episodes" in info else []
    finally:
        scheme.stop()

    assert worker.actor_version == 2 * worker.env_step // 64 - 1  # of the last two, one was made
    assert info["PolicyLag"] in (0, 1) and info["GradientAsynchrony"] == 0
    assert rewards[-1] > 1.3 * np.nanmean(rewards[:10])


def test_a_collector_counts_its_rows_and_evaluates(plain: Any) -> None:
    worker = CWorker(
        1, 0, *parts_of(plain)[:3],
        fraction_samples=0.5, train_envs_factory=plain.make_envs, test_envs_factory=plain.make_envs,
    )  # fmt: skip
    try:
        worker.stop_collecting(3)
        rows, info = worker.collect_data(listen_to=[("sync", 3)])
        assert info["NumberSamples"] == len(rows["reward"]) == 32
        assert worker.collect_data()[1]["NumberSamples"] == 64
        assert worker.evaluate() > 5
        state = {name: each + 1 for name, each in worker.actor.state_dict().items()}
        worker.set_weights({"version": 5, "weights": state})
        assert worker.actor_version == 5 and (worker.actor[0].bias >= 0).any()
        with pytest.raises(CommError, match=r"weights '0.bias' have shape \(3,\)"):
            worker.set_weights({"version": 6, "weights": {**state, "0.bias": np.zeros(3)}})
    finally:
        worker.stop()


def test_words_that_do_not_fit_are_refused(plain: Any) -> None:
    envs = plain.make_envs
    collectors = CWorkerSet.create_factory(0, *parts_of(plain)[:3], envs, envs)
    workers = GWorkerSet.create_factory(
        0, col_execution="Central", col_communication="synchronous", col_workers_factory=collectors
    )
    for words, said in (
        (dict(grad_execution="Parallel"), "gradients in parallel need workers"),
        (dict(grad_execution="Centrally"), "grad_execution is 'Centrally'"),
        (dict(col_fraction_workers=0.0), "col_fraction_workers is 0.0"),
        (dict(decentralized_update_execution=True), "they need grad_execution='Parallel'"),
    ):
        with pytest.raises(ConfigError, match=said):
            UWorker(workers, **words)
