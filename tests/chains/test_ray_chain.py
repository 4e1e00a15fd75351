"""`ding -m ray` runs the documented workers: their calls are counted, and a subclass named in the config is used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.entry.cli import main
from ding_like.pipeline.ray import CWorker, GWorker, UWorker
from tests.chains.hands import hands_of, record_hands


def on_a_cluster(test: Any) -> Any:
    """Mark a test of the command that starts a cluster."""
    return pytest.mark.ray(pytest.mark.slow(pytest.mark.timeout(300)(test)))


ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
WORKERS = "tests.chains.test_ray_chain"


def note(name: str, where: str) -> None:
    with open(os.environ["DING_CALLS"], "a") as file:  # one short line: whole, whichever process appends
        file.write(f"{name} {where} {os.getpid()}\n")


class CountingCWorker(CWorker):
    def collect_data(self, *args: Any, **kwargs: Any) -> Any:
        note("CWorker.collect_data", f"{self.index_parent}/{self.index_worker}")
        return super().collect_data(*args, **kwargs)

    def set_weights(self, actor_weights: Any) -> None:
        note("CWorker.set_weights", f"{self.index_parent}/{self.index_worker}")
        super().set_weights(actor_weights)


class CountingGWorker(GWorker):
    def __init__(self, index_worker: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(index_worker, *args, **kwargs)
        for owner, name in ((self, "get_data"), (self, "get_grads"), (self, "apply_gradients"), (self, "set_weights")):
            self._count(owner, name, f"GWorker.{name}")
        self._count(self.collector, "step", "CollectorThread.step")

    def _count(self, owner: Any, name: str, noted: str) -> None:
        method = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            note(noted, str(self.index_worker))
            return method(*args, **kwargs)

        setattr(owner, name, counted)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        note("GWorker.step", str(self.index_worker))
        return super().step(*args, **kwargs)


class CountingUWorker(UWorker):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        step = self.updater.step

        def counted() -> Any:
            note("UpdaterThread.step", "0")
            return step()

        self.updater.step = counted  # type: ignore[method-assign]

    def step(self) -> Any:
        note("UWorker.step", "0")
        return super().step()


class DoublingCWorker(CWorker):
    """Collector whose rewards count a hundred times."""

    def collect_data(self, *args: Any, **kwargs: Any) -> Any:
        rows, info = super().collect_data(*args, **kwargs)
        segment = info["Segment"]
        info["Segment"] = replace(segment, stats={**segment.stats, "return": 4321.0})
        return rows, info


class RemakingGWorker(GWorker):
    """Gradient worker whose minibatches have rewards of zero."""

    def has_batch(self) -> bool:
        found = super().has_batch()
        if found:
            self._batch = self._batch.with_columns(reward=np.zeros_like(self._batch["reward"]))
        return found


class TellingUWorker(UWorker):
    """Update worker whose steps say so."""

    def step(self) -> Any:
        info = super().step()
        note("told", "0")
        return info


def ding(folder: Path, *overrides: str) -> Counter[str]:
    """Run the command to 2,000 env steps, and return its calls: "name process", by worker."""
    calls = folder / "calls.txt"
    calls.touch()
    few = ["env.n_evaluator_episode=5", "env.evaluator_env_num=5", "env.stop_value=1000"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ding_like.entry.cli", "-m", "ray", "-c", str(CONFIG), "--env-step", "2000"),
            *("--exp-name", "exp", *few, *overrides),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "DING_CALLS": str(calls)},
        cwd=folder, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Counter(" ".join(line.split()[:2]) for line in calls.read_text().splitlines())


def classes(**names: str) -> list[str]:
    return [f"system.ray.{kind}.type={WORKERS}:{name}" for kind, name in names.items()]


COUNTING = classes(c_worker="CountingCWorker", g_worker="CountingGWorker", u_worker="CountingUWorker")


@on_a_cluster
def test_with_two_collectors_each_link_of_the_chain_is_called(tmp_path: Path) -> None:
    found = ding(tmp_path, *COUNTING, "system.ray.collect.comm=sync")
    updates = json.loads((tmp_path / "exp/result.json").read_text())["train_iter"]

    steps = found["UWorker.step 0"]
    assert steps == found["UpdaterThread.step 0"] == found["GWorker.step 0"] >= updates
    assert found["GWorker.get_grads 0"] == found["GWorker.apply_gradients 0"] == updates > 0
    assert found["GWorker.get_data 0"] == found["CollectorThread.step 0"] > 0
    for index in (1, 2):
        assert found[f"CWorker.collect_data 0/{index}"] >= found["GWorker.get_data 0"]
        assert found[f"CWorker.set_weights 0/{index}"] > 0


@on_a_cluster
def test_two_gradient_workers_have_two_collectors_each(tmp_path: Path) -> None:
    found = ding(tmp_path, *COUNTING, "system.ray.collect.comm=sync", "system.ray.grad.workers=2")
    updates = json.loads((tmp_path / "exp/result.json").read_text())["train_iter"]

    assert found["UWorker.step 0"] == found["UpdaterThread.step 0"]
    assert found["GWorker.apply_gradients 0"] == updates > 0 and not found["GWorker.get_grads 0"]
    for parent in (1, 2):
        assert found[f"GWorker.step {parent}"] == found[f"GWorker.get_grads {parent}"] == updates
        assert found[f"GWorker.set_weights {parent}"] >= updates - 1
        for index in (1, 2):
            assert found[f"CWorker.collect_data {parent}/{index}"] > 0


@on_a_cluster
@pytest.mark.parametrize("kind", ["c_worker", "g_worker", "u_worker"])
def test_a_class_named_in_the_config_changes_the_run(kind: str, tmp_path: Path) -> None:
    name = {"c_worker": "DoublingCWorker", "g_worker": "RemakingGWorker", "u_worker": "TellingUWorker"}[kind]
    found = ding(tmp_path, *classes(**{kind: name}))

    lines = [json.loads(line) for line in (tmp_path / "exp/metrics.jsonl").read_text().splitlines()]
    rewards = {line["reward_mean"] for line in lines if line["source"] == "collector"}
    values = [line["q_value_avg"] for line in lines if line["source"] == "learner"]
    assert (rewards == {4321.0}) == (kind == "c_worker")
    assert (max(values) < 1.0) == (kind == "g_worker"), "without rewards nothing has a value"
    assert (found["told 0"] > 0) == (kind == "u_worker")


@on_a_cluster
def test_a_name_of_no_class_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as said:
        ding(tmp_path, "system.ray.c_worker.type=collections:Counter")

    assert re.search(
        r"system.ray.c_worker.type is 'collections:Counter', which is no subclass of CWorker", str(said.value)
    )


@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_row_passes_at_most_fourteen_files(tmp_path: Path) -> None:
    few = ["policy.random_collect_size=0", "policy.nstep=1", "policy.collect.n_sample=64"]
    with record_hands(tmp_path, loops=["pipeline/training_loop.py:_loop"]):
        main(["-m", "ray", "--workers", "0", "-c", str(CONFIG), "--env-step", "640", "--exp-name", "exp", *few])

    hands = hands_of(tmp_path)
    assert {"pipeline/ray/scheme.py", "pipeline/ray/workers.py", "policy/value_based.py"} <= {*hands}
    assert len(hands) <= 14, hands
