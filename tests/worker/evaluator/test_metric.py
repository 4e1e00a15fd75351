"""The metric evaluator: what it measures, when it stops, what it keeps, what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ding_like.config import deep_merge
from ding_like.errors import ConfigError
from ding_like.worker import IMetric, MetricSerialEvaluator, create_serial_evaluator


class Accuracy(IMetric):
    def eval(self, inputs: torch.Tensor, label: torch.Tensor) -> dict[str, float]:
        return {"acc": float((inputs == label).float().mean())}

    def reduce_mean(self, inputs: Sequence[Mapping[str, float]]) -> dict[str, float]:
        return {"acc": sum(each["acc"] for each in inputs) / len(inputs)}

    def gt(self, metric1: Any, metric2: Any) -> bool:
        return metric2 is None or metric1["acc"] > metric2["acc"]


def batches(*right: tuple[int, int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of (how many the policy gets right, of how many)."""
    return [(torch.arange(size) >= size - hits, torch.ones(size, dtype=torch.bool)) for hits, size in right]


def make(folder: Path, data: Any, **cfg: Any) -> MetricSerialEvaluator:
    policy = SimpleNamespace(forward=lambda inputs: inputs, reset=lambda: None)
    merged = deep_merge(MetricSerialEvaluator.config, cfg)
    evaluator: MetricSerialEvaluator = create_serial_evaluator(
        merged, env=(data, Accuracy()), policy=policy, exp_name=str(folder / "run")
    )
    return evaluator


def test_each_item_counts_as_much_as_any_other(tmp_path: Path) -> None:
    """The last batch is short: 4 + 4 + 0 of 9 are right, not the mean of the batches' 1, 1 and 0."""
    evaluator = make(tmp_path, batches((4, 4), (4, 4), (0, 1)))

    stop, found = evaluator.eval(train_iter=1)

    assert found == {"acc": pytest.approx(8 / 9)} and not stop
    evaluator.close()


def test_the_best_model_is_kept_and_the_bar_ends_training(tmp_path: Path) -> None:
    data = batches((1, 4))
    evaluator = make(tmp_path, data, stop_value={"acc": 0.75})
    saved: list[str] = []

    assert evaluator.eval(saved.append, train_iter=0)[0] is False
    assert evaluator.eval(saved.append, train_iter=50)[0] is False
    assert len(saved) == 1, "as good as before is no better"
    data[:] = batches((3, 4))
    stop, _ = evaluator.eval(saved.append, train_iter=100)

    assert stop and saved == ["ckpt_best.pth.tar"] * 2 and evaluator.best_metric == {"acc": 0.75}
    other = make(tmp_path, data)
    other.load_state_dict(evaluator.state_dict())
    assert other.best_metric == {"acc": 0.75} and not other.should_eval(149) and other.should_eval(150)
    evaluator.close()
    other.close()


def test_the_first_evaluation_does_not_stop(tmp_path: Path) -> None:
    evaluator = make(tmp_path, batches((4, 4)), stop_value={"acc": 0.5})

    assert evaluator.eval(train_iter=0)[0] is False and evaluator.eval(train_iter=1)[0] is True
    evaluator.close()


def test_data_and_metric_may_come_in_a_list(tmp_path: Path) -> None:
    policy = SimpleNamespace(forward=lambda inputs: inputs, reset=lambda: None)
    cfg = MetricSerialEvaluator.default_config()
    evaluator = MetricSerialEvaluator(cfg, [batches((3, 4)), Accuracy()], policy, exp_name=str(tmp_path / "run"))

    _, found = evaluator.eval(train_iter=1)
    evaluator.close()

    assert found == {"acc": 0.75}


def test_what_is_no_data_is_refused(tmp_path: Path) -> None:
    evaluator = make(tmp_path, [])

    with pytest.raises(ConfigError, match="empty"):
        evaluator.eval()
    with pytest.raises(ConfigError, match="batches of"):
        evaluator.reset_env(batches((1, 1)))  # type: ignore[arg-type]
    bare = MetricSerialEvaluator(MetricSerialEvaluator.config, exp_name=str(tmp_path / "bare"))
    with pytest.raises(ConfigError, match="needs data and a policy"):
        bare.eval()
    evaluator.close()
    bare.close()
