"""Gradients by every pattern: what is learned, what a lost worker costs, how old a gradient may be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.workers.threads import ThreadHost
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.ray.gradients import AsynchronousGradients
from ding_like.pipeline.roles.gradient_rounds import GradientSettings
from tests.pipeline.ray.gradient_cases import Gate, Run, assert_close, gated


def policies(*quick: str, slow: tuple[str, ...] = ()) -> list[Any]:
    """Return names of cases; those of `slow` are not in the suite."""
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@pytest.fixture
def host() -> Iterator[ThreadHost]:
    host = ThreadHost()
    yield host
    host.close(timeout_s=2.0)


def central(name: str, folder: Path, turns: int) -> Run:
    with Run(name, folder / "central", execution="Central", num_workers=0) as run:
        return run.learn(turns)


def kill_at(gate: Gate, host: ThreadHost, victim: Any, *, opens: bool = True) -> threading.Thread:
    """Start a thread that kills a worker once the gate holds it, and may open the gate."""

    def kill() -> None:
        gate.entered.wait(60.0)
        host.kill(victim)
        if opens:
            gate.opened.set()

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


def assert_same_priorities(run: Run, wanted: Run) -> None:
    assert len(run.store.updates) == len(wanted.store.updates)
    for one, other in zip(run.store.updates, wanted.store.updates, strict=True):
        np.testing.assert_array_equal(one["replay_buffer_idx"], other["replay_buffer_idx"])
        np.testing.assert_allclose(one["priority"], other["priority"], atol=1e-5)


# --- together


@pytest.mark.parametrize(
    "name",
    policies("dqn prioritised", "ppo", slow=("sac", "impala", "r2d2", "ppo_recurrent", "ppg schedules")),
)
def test_gradients_of_two_workers_teach_what_those_of_one_process_do(name: str, tmp_path: Path) -> None:
    wanted = central(name, tmp_path, 4)
    with Run(name, tmp_path / "parallel") as run:
        run.learn(4)

    assert run.learner.train_iter == wanted.learner.train_iter > 0
    assert_close(run.state, wanted.state)
    assert_same_priorities(run, wanted)


def test_a_worker_that_dies_in_a_round_loses_no_part_and_none_is_applied_twice(
    tmp_path: Path, host: ThreadHost
) -> None:
    wanted, gate = central("dqn prioritised", tmp_path, 4), Gate(index=1, call=3)
    with Run("dqn prioritised", tmp_path / "run", host=host, worker_class=gated(gate), standby=1) as run:
        victim = run.u_worker.remote_workers[0]
        killer = kill_at(gate, host, victim)
        run.learn(4)
        killer.join()

    assert gate.entered.is_set()
    assert [row.worker for row in run.log.rows] == [victim.name]
    assert run.learner.train_iter == wanted.learner.train_iter
    assert_close(run.state, wanted.state)
    assert_same_priorities(run, wanted)


def test_a_worker_that_hangs_is_replaced_and_its_part_given_to_another(tmp_path: Path, host: ThreadHost) -> None:
    wanted, gate = central("ppo", tmp_path, 2), Gate(index=2, call=4)
    settings = GradientSettings(step_timeout_s=1.5)
    with Run("ppo", tmp_path / "run", host=host, worker_class=gated(gate), standby=1, settings=settings) as run:
        run.learn(2)
        gate.opened.set()

    [row] = run.log.rows
    assert (row.worker, row.how) == ("gradient2", "no answer for 1.5 s")
    assert_close(run.state, wanted.state)


def test_a_late_part_is_left_out_and_counted_when_the_round_is_over(tmp_path: Path, host: ThreadHost) -> None:
    gate = Gate(index=2, call=2)
    settings = GradientSettings(round_timeout_s=1.5, step_timeout_s=20.0)
    with Run("dqn prioritised", tmp_path, host=host, worker_class=gated(gate), settings=settings) as run:
        run.learn(2)
        measured = run.u_worker.local_worker.gradients.measures()
        gate.opened.set()
        run.learn(1)

    rows = len(run.store.drawn[1])
    assert measured["rows_not_learned"] == rows / 2
    assert run.learner.train_iter == 6
    late = run.store.updates[1]["priority"]
    assert np.all(late[rows // 2 :] == late[: rows // 2].max()), "rows that were not learned from come again soon"
    assert not run.log.rows


def test_a_round_with_too_few_parts_ends_the_run(tmp_path: Path, host: ThreadHost) -> None:
    gate = Gate(index=2, call=2)
    settings = GradientSettings(min_workers=2, round_timeout_s=1.0)
    with Run("dqn", tmp_path, host=host, worker_class=gated(gate), settings=settings) as run:
        with pytest.raises(TrainingError, match=r"1 of 2 parts .* fewer than grad.min_workers=2"):
            run.learn(2)
        gate.opened.set()


# --- one by one


@pytest.mark.parametrize("name", policies("dqn prioritised", slow=("ppo", "impala")))
def test_one_worker_by_itself_learns_bit_by_bit_what_one_process_does(name: str, tmp_path: Path) -> None:
    wanted = central(name, tmp_path, 4)
    with Run(name, tmp_path / "run", communication="asynchronous", num_workers=1) as run:
        assert isinstance(run.u_worker.local_worker.gradients, AsynchronousGradients)
        for _ in range(4):
            run.u_worker.updater.local_worker.step()  # in this thread: as many turns as the other has taken
        run.u_worker.settle()

    assert run.learner.train_iter == wanted.learner.train_iter
    for path, value in wanted.state.items():
        same = torch.equal(run.state[path], value) if isinstance(value, torch.Tensor) else run.state[path] == value
        assert same, path
    assert_same_priorities(run, wanted)


@pytest.mark.parametrize("name", policies("dqn prioritised", slow=("impala prioritised", "ppo schedules")))
def test_every_batch_is_learned_from_once_and_its_rows_get_their_priorities(name: str, tmp_path: Path) -> None:
    with Run(name, tmp_path, communication="asynchronous", num_workers=3, batches_a_turn=5) as run:
        run.learn(4)

        by_id = {int(batch["replay_buffer_idx"][0]): len(batch) for batch in run.store.drawn}
        if "ppo" not in name:
            assert run.learner.train_iter == len(run.store.drawn)
        if run.policy.cfg.priority:
            told = {int(info["replay_buffer_idx"][0]): len(info["priority"]) for info in run.store.updates}
            assert told == by_id
        rows = run.state.get("/rows_trained")
        if rows is not None and name.startswith("impala"):
            share = run.policy.cfg.collect.n_sample / (run.policy.cfg.learn.update_per_collect * 16)
            wanted = sum(share * len(batch) * 5 for batch in run.store.drawn)
            assert rows == pytest.approx(wanted), "schedules count every batch"


def test_a_gradient_that_is_too_old_is_computed_again(tmp_path: Path, host: ThreadHost) -> None:
    gate = Gate(index=1, call=1)
    settings = GradientSettings(max_staleness=2, staleness="drop", step_timeout_s=60.0)
    with Run(
        "dqn prioritised", tmp_path, communication="asynchronous", host=host, worker_class=gated(gate),
        batches_a_turn=6, settings=settings,
    ) as run:  # fmt: skip
        worker = run.u_worker.local_worker
        worker.step()  # five others pass the one that is held
        gate.opened.set()
        run.u_worker.settle()
        measured = worker.gradients.measures()

    assert run.learner.train_iter == len(run.store.drawn) == len(run.store.updates) == 6
    assert measured["stale_gradients"] == 1 and measured["GradientAsynchrony"] <= 2


def test_a_gradient_that_is_too_old_counts_less(tmp_path: Path) -> None:
    states = []
    for staleness in (None, 2):
        gate = Gate(index=1, call=1)
        settings = GradientSettings(max_staleness=staleness, staleness="down_weight", step_timeout_s=60.0)
        with closing(ThreadHost()) as host, Run(
            "dqn", tmp_path / str(staleness), communication="asynchronous", host=host, worker_class=gated(gate),
            batches_a_turn=6, settings=settings,
        ) as run:  # fmt: skip
            run.u_worker.local_worker.step()
            gate.opened.set()
            run.u_worker.settle()
            states.append(run.state)
            measured = run.u_worker.local_worker.gradients.measures()
            assert (run.learner.train_iter, measured["stale_gradients"]) == (6, 0 if staleness is None else 1)

    tensors = [[each for each in state.values() if isinstance(each, torch.Tensor)] for state in states]
    assert not all(torch.equal(*pair) for pair in zip(*tensors, strict=True))


def test_a_worker_that_dies_alone_has_its_minibatch_computed_by_another(tmp_path: Path, host: ThreadHost) -> None:
    gate = Gate(index=1, call=2)
    with Run(
        "dqn prioritised", tmp_path, communication="asynchronous", host=host, worker_class=gated(gate), standby=1
    ) as run:
        victim = run.u_worker.remote_workers[0]
        killer = kill_at(gate, host, victim)
        run.learn(6)
        killer.join()

    assert [row.worker for row in run.log.rows] == [victim.name]
    assert run.learner.train_iter == len(run.store.drawn)
    assert sorted(int(info["replay_buffer_idx"][0]) for info in run.store.updates) == [
        int(batch["replay_buffer_idx"][0]) for batch in run.store.drawn
    ]


# --- on every rank


@pytest.mark.parametrize("name", policies("dqn prioritised", slow=("ppo", "sac", "r2d2")))
def test_ranks_that_average_and_apply_themselves_learn_what_one_process_does(name: str, tmp_path: Path) -> None:
    wanted = central(name, tmp_path, 4)
    settings = GradientSettings(compare_every=2, step_timeout_s=20.0)
    with Run(name, tmp_path / "run", decentralized=True, settings=settings) as run:
        run.learn(4)
        sums = [worker.call("of_rank", "checksum") for worker in run.u_worker.remote_workers]
        done = [run.u_worker.grad_workers.host.wait([call], timeout_s=10.0)[0].result() for call in sums]

    assert run.learner.train_iter == wanted.learner.train_iter
    assert_close(run.state, wanted.state)
    assert_same_priorities(run, wanted)
    assert done[0] == done[1], "all ranks have the same bits"


def test_a_lost_rank_ends_the_run_with_what_the_others_have_learned(tmp_path: Path, host: ThreadHost) -> None:
    # First: threads of a run whose worker was lost may still make policies, which seed the generators of all threads.
    with Run("dqn", tmp_path / "five", execution="Central", num_workers=0, batches_a_turn=1) as wanted:
        wanted.learn(5)
    gate = Gate(index=2, call=6)
    settings = GradientSettings(step_timeout_s=20.0)
    run = Run("dqn", tmp_path / "run", decentralized=True, host=host, worker_class=gated(gate), settings=settings)
    with run:
        victim = run.u_worker.remote_workers[1]
        killer = kill_at(gate, host, victim, opens=False)
        with pytest.raises(TrainingError, match=r"gradient2: lost .* 5 updates is kept.*ding --resume"):
            run.learn(4)
        killer.join()
        gate.opened.set()  # a thread's method goes on, and is of no use to anybody
        run.u_worker.settle()

    assert run.learner.train_iter == 5
    assert_close(run.state, wanted.state)


# --- which patterns there are


def test_patterns_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        (dict(execution="Parallel", communication="asynchronous", decentralized=True), "decentralised updates"),
        (dict(execution="Central", decentralized=True), "decentralised updates"),
        (dict(execution="parallel"), "'Parallelised'"),
        (dict(communication="async"), "'asynchronous'"),
        (dict(num_workers=0), "need workers"),
    ]
    for words, reason in wrong:
        with pytest.raises(ConfigError, match=reason):
            Run("dqn", tmp_path, **words)


def test_settings_that_make_no_sense_are_refused_with_every_fault() -> None:
    with pytest.raises(ConfigError, match=r"min_workers is 0.*staleness is 'ignore'"):
        GradientSettings(min_workers=0, staleness="ignore")
