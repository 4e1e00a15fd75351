"""TrainingLoop -> RankRunner.step -> DistributedWeightUpdater.push_weights -> a collecting rank: update, collect."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.comm import DistributedWeightUpdater
from ding_like.comm.channels import Weights
from ding_like.pipeline.ranks import CollectingRanks, RankCollector, RankRunner
from tests.pipeline.ranks.runs import ranks
from tests.pipeline.ray import runs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

UPDATES = 40
_HERE = "tests.chains.test_ranks_chain"
FOLDER = "DING_TEST_CALLS"  # a variable of the environment, which the ranks inherit


def note(what: str) -> None:
    with open(Path(os.environ[FOLDER], what), "a") as file:
        file.write("x")


def num_calls(folder: Path, what: str) -> int:
    return len((folder / what).read_text())


class NotingCollector(RankCollector):
    def update(self, weights: Weights) -> None:
        note("update")
        super().update(weights)

    def collect(self) -> None:
        note("collect")
        super().collect()


class FrozenUpdater(DistributedWeightUpdater):
    """Pushes zeros in place of the weights."""

    def _maybe_map_weights(self, server_weights: Any) -> Any:
        note("map")
        state = super()._maybe_map_weights(server_weights).state_dict()
        return {**state, "model": {name: 0 * value for name, value in state["model"].items()}}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "calls"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))
    return folder


def counted(monkeypatch: pytest.MonkeyPatch, *methods: tuple[type, str]) -> Counter[str]:
    """Count the calls of methods, which do what they did."""
    found: Counter[str] = Counter()

    def count(cls: type, name: str) -> None:
        own = getattr(cls, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            found[f"{cls.__name__}.{name}"] += 1
            return own(*args, **kwargs)

        monkeypatch.setattr(cls, name, method)

    for cls, name in methods:
        count(cls, name)
    return found


def test_a_run_goes_through_the_documented_classes(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = counted(
        monkeypatch,
        (RankRunner, "step"),
        (DistributedWeightUpdater, "push_weights"),
        (CollectingRanks, "increment_version"),
    )

    ranks(
        runs.dqn(random_collect_size=0, learn=dict(update_per_collect=4, batch_size=8)),
        max_train_iter=UPDATES,
        system={"collector": {"type": f"{_HERE}:NotingCollector"}},
    )

    rounds = UPDATES // 4  # update_per_collect
    assert found["RankRunner.step"] == found["DistributedWeightUpdater.push_weights"] == rounds
    assert found["CollectingRanks.increment_version"] == rounds
    assert num_calls(calls, "update") == num_calls(calls, "collect") == rounds


def test_an_updater_named_by_the_config_changes_the_run(calls: Path) -> None:
    named = {"updater": {"type": f"{_HERE}:FrozenUpdater"}}
    own = ranks(runs.ppo(), max_train_iter=32, exp_name="own", system=named)
    ours = ranks(runs.ppo(), max_train_iter=32, exp_name="ours")

    assert num_calls(calls, "map") == 2  # one round of rows is learned from in 16 updates
    learned = [policy.learn_mode.state_dict()["model"] for policy in (own, ours)]
    assert any(not torch.equal(value, learned[1][name]) for name, value in learned[0].items())
