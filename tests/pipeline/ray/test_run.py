"""A run by a scheme ends, is saved and goes on like a serial one."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.workers.host import WorkerHandle
from ding_like.comm.workers.threads import ThreadHost
from ding_like.errors import CommError
from ding_like.pipeline.checkpoint import resume_store
from ding_like.pipeline.ray import CWorker
from ding_like.pipeline.turns import TurnsLostError
from ding_like.utils.checkpoint import load_state
from tests.pipeline.ray import runs
from tests.pipeline.ray.match_env import Match
from tests.pipeline.ray.test_scheme import dqn, ppo

pytestmark = pytest.mark.usefixtures("in_tmp")


def endless(configs: Any) -> Any:
    """Return configs of a run that no evaluation ends."""
    configs[0]["env"]["stop_value"] = 1e9
    return configs


def after(turns: int, act: Any) -> Any:
    """Return what wraps the making of turns, so that `act` is called in place of the turn after `turns` of them."""

    def wrap(make: Any) -> Any:
        def made(is_leaving: Any) -> Any:
            inner, count = make(is_leaving), [0]
            take = inner.take

            def counted() -> None:
                count[0] += 1
                if count[0] == turns + 1:
                    act(inner)
                else:
                    take()

            inner.take = counted
            return inner

        return made

    return wrap


# --- counts


@pytest.mark.parametrize("chosen", [runs.settings(0), runs.settings(2), runs.settings(2, grad_workers=2)])
@pytest.mark.parametrize("configs", [dqn, ppo], ids=["dqn", "ppo"])
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


def test_a_buffer_of_rows_is_not_lost_over_a_resume_with_fewer_workers():
    runs.scheme(endless(dqn()), runs.settings(2), max_env_step=500)
    runs.scheme(None, runs.settings(1), max_env_step=1000, resumes=True)

    assert runs.result("scheme")["train_iter"] == (runs.result("scheme")["env_step"] - 64) // 4


# --- ends


@pytest.mark.parametrize("comm", ["sync", "async"])
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


@pytest.mark.slow  # what hangs is given its time to end
@pytest.mark.parametrize("comm", ["sync", "async"])
def test_a_worker_that_hangs_holds_up_neither_sigterm_nor_what_was_collected(comm, monkeypatch):
    gate = threading.Event()

    def hang() -> None:
        if threading.current_thread() is not threading.main_thread():  # where evaluations are
            gate.wait(60.0)

    def stick(turns: Any) -> None:
        monkeypatch.setattr(Match, "before_step", staticmethod(hang))
        threading.Timer(0.5, signal.raise_signal, (signal.SIGTERM,)).start()

    workers: list[CWorker] = []
    make = CWorker.__init__

    def noted(self: CWorker, *args: Any, **kwargs: Any) -> None:
        workers.append(self)
        make(self, *args, **kwargs)

    monkeypatch.setattr(CWorker, "__init__", noted)
    began_s = time.monotonic()
    try:
        with pytest.raises(SystemExit):
            runs.scheme(endless(dqn()), runs.settings(2, comm), wrap=after(6, stick), max_env_step=9000)
    finally:
        took_s = time.monotonic() - began_s
        gate.set()
        for thread in threading.enumerate():
            if thread.name.startswith("collector"):
                thread.join(10.0)
        for worker in workers:  # a thread cannot be killed, as a process is with all that it has open
            worker.stop()

    assert took_s < 30
    saved = resume_store("scheme").load_newest()
    rows = saved.parts["run"]["turns"]["rows"]
    assert rows["collected"] + 64 == saved.step >= 64 + 6 * 32
    assert rows["granted"] == rows["collected"] // 4 == saved.parts["run"]["learner"]["last_iter"]


def noting_host() -> tuple[ThreadHost, list[WorkerHandle]]:
    """Return a host and the workers that it will have started."""
    host, started = ThreadHost(), []
    start = host.start

    def noted(*args: Any, **kwargs: Any) -> WorkerHandle:
        started.append(start(*args, **kwargs))
        return started[-1]

    host.start = noted  # type: ignore[method-assign]
    return host, started


class LosableHost(ThreadHost):
    """Be a host that can be lost."""

    is_lost = False

    def wait(self, calls: Any, *, timeout_s: float) -> Any:
        if self.is_lost:
            raise CommError("the cluster is lost: its head answers no more.")
        return super().wait(calls, timeout_s=timeout_s)


@pytest.mark.parametrize("chosen", [runs.settings(2), runs.settings(2, "async"), runs.settings(0, grad_workers=2)])
def test_a_lost_host_ends_the_run_with_a_point_and_the_line_that_goes_on(chosen):
    host = LosableHost()

    def lose(turns: Any) -> None:
        host.is_lost = True

    with pytest.raises(TurnsLostError, match="the cluster is lost.*saved, go on with  ding --resume scheme"):
        runs.scheme(endless(dqn()), chosen, wrap=after(6, lose), host=host, max_env_step=9000)

    runs.scheme(None, chosen, max_env_step=1000, resumes=True)
    found = runs.result("scheme")
    assert found["train_iter"] == (found["env_step"] - 64) // 4


def test_workers_that_die_are_replaced_and_the_run_goes_on_exactly():
    host, started = noting_host()

    def kill(turns: Any) -> None:
        host.kill(next(worker for worker in started if worker.name == "collector1"))

    runs.scheme(endless(dqn()), runs.settings(2), wrap=after(6, kill), host=host, max_env_step=1000)

    found = runs.result("scheme")
    assert found["env_step"] >= 1000 and found["train_iter"] == (found["env_step"] - 64) // 4


def test_a_spent_budget_ends_the_run_with_a_point_and_says_what_was_lost():
    host, started = noting_host()

    def wrap(make: Any) -> Any:
        def made(is_leaving: Any) -> Any:
            turns = make(is_leaving)
            take = turns.take

            def kill_and_take() -> None:
                if turns._scheme.end.rows.env_step >= 64 + 6 * 32:
                    for worker in [each for each in started if each.name.startswith("collector")]:
                        host.kill(worker)
                take()

            turns.take = kill_and_take
            return turns

        return made

    with pytest.raises(TurnsLostError, match="(?s)collector.*ding --resume scheme"):
        runs.scheme(endless(dqn()), runs.settings(2), wrap=wrap, host=host, max_env_step=90_000)

    saved = resume_store("scheme").load_newest()
    assert saved.step >= 64 + 6 * 32
    assert saved.parts["run"]["learner"]["last_iter"] == saved.parts["run"]["turns"]["rows"]["collected"] // 4


# --- what is shown and written


def test_metrics_have_lag_age_and_rates(monkeypatch):
    monkeypatch.setattr("ding_like.pipeline.roles.remote_collectors._METRICS_S", 0.0)
    runs.scheme(endless(dqn()), runs.settings(2, "async"), max_env_step=2000)

    lines = [json.loads(line) for line in Path("scheme/metrics.jsonl").read_text().splitlines()]
    said = [line for line in lines if line["source"] == "collector"][-1]
    assert said["PolicyLag"] >= 0 and said["data_age_s"] > 0 and said["envstep_per_sec"] > 0
    assert 0 <= said["reward_mean"] <= 8 and said["avg_envstep_per_episode"] == 8


# --- what else a serial config may have


@pytest.mark.parametrize("comm", ["sync", "async"])
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


@pytest.mark.parametrize("comm", ["sync", "async"])
def test_whole_episodes_are_shared_among_the_collectors(comm):
    main, create = endless(ppo())
    main["policy"]["collect"] = dict(n_episode=8, collector=dict(get_train_sample=True))
    create["collector"] = dict(type="episode")

    runs.scheme((main, create), runs.settings(2, comm), max_env_step=8 * 64)

    found = runs.result("scheme")
    assert found["env_step"] == 8 * 64, "an episode has 8 steps"
    lines = [json.loads(line) for line in Path("scheme/metrics.jsonl").read_text().splitlines()]
    assert {"collector", "learner", "evaluator"} >= {line["source"] for line in lines}


def test_a_board_game_is_played_by_both_players_in_each_collector():
    main = dict(
        exp_name="exp",
        env=dict(
            env_id="classic/tictactoe-v3", flatten=True, collector_env_num=4, evaluator_env_num=4, n_evaluator_episode=8
        ),
        policy=dict(
            model=dict(encoder_hidden_size_list=[16]),
            learn=dict(update_per_collect=2, batch_size=16),
            collect=dict(n_sample=16),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
    create = dict(
        env=dict(type="petting_zoo"), env_manager=dict(type="game"), policy=dict(type="dqn"),
    )  # fmt: skip

    runs.scheme((main, create), runs.settings(2), max_env_step=400)

    assert runs.result("scheme")["train_iter"] >= 30
