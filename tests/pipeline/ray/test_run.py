"""A run by a scheme ends, is saved and goes on like a serial one."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ding_like.pipeline.record import resume_store
from ding_like.pipeline.training_loop import RunnerLostError
from ding_like.utils.checkpoint import load_state
from tests.pipeline.ray import runs
from tests.pipeline.ray.test_scheme import dqn, ppo

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("in_tmp", "ray_cluster")]


def endless(configs: Any) -> Any:
    """Return configs of a run that no evaluation ends."""
    configs[0]["env"]["stop_value"] = 1e9
    return configs


def after(turns: int, act: Any) -> Any:
    """Return what wraps the making of turns, so that `act` is called in place of the turn after `turns` of them."""

    def wrap(make: Any) -> Any:
        def made(is_leaving: Any) -> Any:
            inner, count = make(is_leaving), [0]
            take = inner.step

            def counted() -> None:
                count[0] += 1
                if count[0] == turns + 1:
                    act(inner)
                else:
                    take()

            inner.step = counted
            return inner

        return made

    return wrap


# --- counts


@pytest.mark.parametrize(
    ("configs", "chosen"),
    [
        (dqn, runs.settings(2)),
        pytest.param(dqn, runs.settings(0), marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_has_the_counts_of_one_that_was_not_interrupted(configs, chosen):
    limits = dict(seed=2, max_env_step=960)
    runs.scheme(endless(configs()), chosen, exp_name="whole", **limits)
    runs.scheme(endless(configs()), chosen, seed=2, max_env_step=448, exp_name="parts")

    runs.scheme(None, chosen, exp_name="parts", resumes=True, **limits)

    whole, parts = runs.result("whole"), runs.result("parts")
    assert whole["env_step"] == parts["env_step"] and whole["train_iter"] == parts["train_iter"] > 50
    saved = [resume_store(name).load_newest().parts for name in ("whole", "parts")]
    assert saved[0]["run"]["turns"] == saved[1]["run"]["turns"]
    if configs is dqn:
        assert saved[0]["buffer"]["push_count"] == saved[1]["buffer"]["push_count"] == whole["env_step"]


def test_asynchronous_collection_keeps_the_ratio_of_updates_to_rows_over_a_resume():
    chosen = runs.settings(2, "async", segment_rows=20)
    runs.scheme(endless(dqn()), chosen, max_env_step=500)
    runs.scheme(None, chosen, max_env_step=1000, resumes=True)

    found = runs.result("scheme")
    # 8 updates for 32 rows, which are env steps here, after 64 of random actions.
    assert found["env_step"] >= 1000
    assert found["train_iter"] == (found["env_step"] - 64) // 4


def test_rounds_that_end_early_keep_the_ratio_of_updates_to_rows():
    runs.scheme(endless(dqn()), runs.settings(2, fraction_workers=0.5, fraction_samples=0.5), max_env_step=1000)

    saved = resume_store("scheme").load_newest().parts["run"]
    assert 500 < saved["turns"]["rows"]["collected"] <= runs.result("scheme")["env_step"] - 64
    assert saved["learner"]["last_iter"] == saved["turns"]["rows"]["collected"] // 4


# --- ends


@pytest.mark.parametrize("comm", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_sigterm_saves_a_point_that_the_run_goes_on_from(comm, caplog):
    caplog.set_level("INFO", logger="ding_like")
    chosen = runs.settings(2, comm)

    with pytest.raises(SystemExit) as left:
        runs.scheme(
            endless(dqn()), chosen, wrap=after(12, lambda turns: signal.raise_signal(signal.SIGTERM)), max_env_step=9000
        )
    assert left.value.code == 128 + signal.SIGTERM
    assert "saved, go on with  ding --resume scheme" in caplog.text

    runs.scheme(None, chosen, max_env_step=800, resumes=True)
    assert runs.result("scheme")["train_iter"] == (runs.result("scheme")["env_step"] - 64) // 4


def kill(turns: Any, kind: str) -> None:
    """Kill the first worker of a kind with signal 9."""
    worker = turns._scheme.update_worker
    sets = {"gradient": worker.grad_workers, "collector": worker.local_worker.c_workers}
    os.kill(sets[kind].remote_workers()[0].info["pid"], signal.SIGKILL)


def killing(kind: str, turns: range) -> Any:
    """Return what wraps the making of turns, so that a worker of a kind is killed before each of some turns."""

    def wrap(make: Any) -> Any:
        def made(is_leaving: Any) -> Any:
            inner, count = make(is_leaving), [0]
            take = inner.step

            def counted() -> None:
                count[0] += 1
                if count[0] in turns:
                    kill(inner, kind)
                take()

            inner.step = counted
            return inner

        return made

    return wrap


def losses(exp_name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(exp_name, "failures.jsonl").read_text().splitlines()]


def test_a_killed_collector_is_restarted_and_the_run_goes_on_exactly():
    runs.scheme(endless(dqn()), runs.settings(2), wrap=killing("collector", range(6, 7)), max_env_step=1000)

    found = runs.result("scheme")
    assert found["env_step"] >= 1000 and found["train_iter"] == (found["env_step"] - 64) // 4
    assert [row["worker"] for row in losses("scheme")] == ["collector1"]


@pytest.mark.parametrize("comm", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_a_killed_gradient_worker_is_restarted_with_an_empty_storage(comm, caplog):
    chosen = runs.settings(0, grad_workers=2, grad_comm=comm)

    runs.scheme(endless(dqn()), chosen, wrap=killing("gradient", range(6, 7)), max_env_step=3000)

    assert runs.result("scheme")["train_iter"] > 100
    assert [row["worker"] for row in losses("scheme")] == ["gradient1"]


def test_a_spent_budget_ends_the_run_with_a_point_and_says_what_was_lost():
    chosen = runs.settings(2)
    chosen = replace(chosen, failure=replace(chosen.failure, restarts_per_10min=0))

    with pytest.raises(RunnerLostError, match="collector1 .*process died.* ding --resume scheme"):
        runs.scheme(endless(dqn()), chosen, wrap=killing("collector", range(7, 9)), max_env_step=90_000)

    saved = resume_store("scheme").load_newest()
    assert saved.step >= 64 + 6 * 32
    assert saved.parts["run"]["learner"]["last_iter"] == saved.parts["run"]["turns"]["rows"]["collected"] // 4


@pytest.mark.slow
def test_a_lost_rank_ends_the_run_and_an_earlier_point_is_named():
    main, create = endless(dqn())
    main["resume"] = dict(save_every_env_steps=130)
    with pytest.raises(RunnerLostError) as lost:
        runs.scheme(
            (main, create), runs.settings(0, grad_workers=2, decentralized=True),
            wrap=killing("gradient", range(40, 41)), max_env_step=90_000,
        )  # fmt: skip

    saved = resume_store("scheme").load_newest()
    assert f"go on from env step {saved.step:,}, saved before, with  ding --resume scheme" in str(lost.value)
    assert int(saved.parts["policy"]["optimizer"]["num_steps"]) == saved.parts["run"]["learner"]["last_iter"]


# --- what is shown and written


def test_metrics_have_lag_age_and_rates(monkeypatch):
    monkeypatch.setattr("ding_like.pipeline.rows._METRICS_S", 0.0)
    runs.scheme(endless(dqn()), runs.settings(2, "async"), max_env_step=2000)

    lines = [json.loads(line) for line in Path("scheme/metrics.jsonl").read_text().splitlines()]
    said = [line for line in lines if line["source"] == "collector"][-1]
    assert said["PolicyLag"] >= 0 and said["data_age_s"] > 0 and said["envstep_per_sec"] > 0
    said_of_updates = [line for line in lines if line["source"] == "updates"][-1]
    assert said_of_updates["GradientAsynchrony"] == 0 and said_of_updates["PolicyLag"] >= 0
    assert 0 <= said["reward_mean"] <= 8 and said["avg_envstep_per_episode"] == 8


# --- what else a serial config may have


@pytest.mark.parametrize("comm", ["async", pytest.param("sync", marks=pytest.mark.slow)])
def test_normalised_observations_are_merged_from_all_collectors_and_saved(comm):
    main, create = endless(dqn())
    main["env"]["wrappers"] = [dict(type="obs_norm"), dict(type="reward_norm", gamma=0.9)]

    runs.scheme((main, create), runs.settings(2, comm), max_env_step=600)
    runs.scheme(None, runs.settings(2, comm), max_env_step=1200, resumes=True)

    saved = resume_store("scheme").load_newest()
    counts = {name: float(value) for name, value in saved.parts["run"]["statistics"].items() if name.endswith("count")}
    # An observation for each step, and one for each of the 8 envs' first episodes and those that followed.
    assert all(count >= saved.step for count in counts.values()) and len(counts) == 2
    newest = max(Path("scheme/ckpt").glob("iteration_*.pth.tar"), key=lambda path: int(path.name.split("_")[1][:-8]))
    [lane] = load_state(newest)["env_wrappers"]["lanes"]  # the outermost wrapper first
    assert [each["type"] for each in lane] == ["RewardNorm", "ObsNorm"]


@pytest.mark.parametrize("comm", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_whole_episodes_are_shared_among_the_collectors(comm):
    main, create = endless(ppo())
    main["policy"]["collect"] = dict(n_episode=8, collector=dict(get_train_sample=True))
    create["collector"] = dict(type="episode")

    runs.scheme((main, create), runs.settings(2, comm), max_env_step=8 * 64)

    found = runs.result("scheme")
    assert found["env_step"] == 8 * 64, "an episode has 8 steps"
    lines = [json.loads(line) for line in Path("scheme/metrics.jsonl").read_text().splitlines()]
    assert {"collector", "learner", "evaluator", "updates"} >= {line["source"] for line in lines}
