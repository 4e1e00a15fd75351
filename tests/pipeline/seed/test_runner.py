"""Runner by central inference: what is put, learned, sent and ordered when, over scripted actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Version
from ding_like.comm.workers.processes import Slot
from ding_like.comm.zmq.rows import Source
from ding_like.entry.training import load_config
from ding_like.errors import CommError
from ding_like.pipeline.components import Components
from ding_like.pipeline.scheme_parts import LearnerSide, build_driver
from ding_like.pipeline.seed.runner import SeedRunner
from ding_like.pipeline.settings import SeedSettings
from ding_like.pipeline.training_loop import RunnerLostError
from tests.pipeline.ray import runs
from tests.pipeline.seed.scripted import Published, ScriptedRows, Workers
from tests.support import Clock


class Run:
    """Runner of a small DQN run: 4 updates for every 8 rows."""

    def __init__(self, parts: Components, cfg: Any, rows: ScriptedRows, clock: Clock, **settings: Any) -> None:
        chosen = SeedSettings(**{"segment_rows": 8, **settings} if settings.get("comm") != "sync" else settings)
        self.parts, self.rows, self.clock = parts, rows, clock
        self.weights, self.workers = Published(clock, chosen.broadcast_period), Workers()
        self.is_leaving = False
        self.end = LearnerSide(
            cfg, parts, max_policy_lag=chosen.max_policy_lag, least_rows=chosen.minimum_buffer_size or 0
        )
        ways: dict[str, Any] = dict(rows=rows, weights=self.weights, workers=self.workers)
        self.runner = SeedRunner(self.end, chosen, **ways, is_leaving=lambda: self.is_leaving, clock=clock)

    def begun(self, steps: int = 0) -> Run:
        """Return this run, begun, and so many steps further."""
        self.runner.start()
        for _ in range(steps):
            self.runner.step()
        return self

    @property
    def updates(self) -> int:
        return self.parts.learner.train_iter

    @property
    def stored(self) -> int:
        return self.parts.replay_buffer.count()


Make = Callable[..., Run]


@pytest.fixture
def make(in_tmp: Path) -> Iterator[Make]:
    with ExitStack() as opened:

        def made(*actors: str, eager: bool = True, policy: Any = None, wrappers: Any = (), **settings: Any) -> Run:
            main, create = runs.dqn(**{"random_collect_size": 0, **(policy or {})})
            main["env"] = {**main["env"], "wrappers": list(wrappers)}
            cfg = load_config((main, create), seed=3)
            parts = build_driver(cfg, seed=3)
            opened.callback(parts.close)
            clock = Clock()
            rows = ScriptedRows(clock, *(actors or ("actor1",)), credit=settings.get("credit", 2), eager=eager)
            return Run(parts, cfg, rows, clock, **settings)

        yield made


# --- asynchronous


def test_each_actor_has_orders_up_to_its_credit_from_the_first_turn_on(make: Make) -> None:
    run = make("actor1", "actor2", eager=False, credit=3).begun()

    assert [name for name, *_ in run.rows.given] == ["actor1"] * 3 + ["actor2"] * 3
    assert {(rows, env_step) for _, rows, env_step, *_ in run.rows.given} == {(8, 0)}


def test_rows_are_acknowledged_once_they_are_in_the_buffer(make: Make) -> None:
    run = make(eager=False).begun()
    run.rows.bring(0)
    stored: list[int] = []
    acknowledge = run.rows.acknowledge
    run.rows.acknowledge = lambda arrived: (stored.append(run.stored), acknowledge(arrived))  # type: ignore[assignment]

    run.runner.step()

    assert stored == [8] and run.rows.acknowledged == [0]


def test_updates_follow_rows_in_the_configs_ratio(make: Make) -> None:
    run = make(segment_rows=16).begun(5)

    assert run.updates == run.stored * 4 // 8


def test_weights_go_out_at_the_begin_and_after_turns_with_updates(make: Make) -> None:
    run = make(eager=False).begun()
    run.runner.step()  # nothing came
    for number in (0, 1):
        run.rows.bring(number)
    run.runner.step()

    assert run.weights.versions == [Version(1, 0), Version(1, run.updates)] and run.updates > 0


def test_a_broadcast_period_keeps_weights_back_until_it_has_passed(make: Make) -> None:
    run = make(broadcast_period=5.0).begun()

    updates = []
    for _ in range(4):
        run.runner.step()
        updates.append(run.updates)
        run.clock.now += 2.0

    assert [version.update for version in run.weights.versions] == [0, updates[3]]


def test_actors_of_a_resumed_run_wait_for_its_own_weights(make: Make) -> None:
    run = make()
    run.rows.eager = False
    run.runner.load_state_dict({"rows": {"collected": 100, "granted": 50}, "random_rows": 0})
    run.runner.step()

    assert {tuple(extra["least"]) for *_, extra in run.rows.given} == {tuple(run.weights.versions[0])}


def test_what_envs_are_normalised_by_goes_out_before_the_first_order_and_when_some_is_observed(make: Make) -> None:
    run = make(wrappers=[dict(type="obs_norm")])
    given = run.rows.give

    def give(*args: Any, **named: Any) -> Any:
        assert run.rows.statistics and "0.ObsNorm/mean" in run.rows.statistics[0]
        return given(*args, **named)

    run.rows.give = give  # type: ignore[method-assign]
    moments = {"count": np.array(8.0), "mean": np.ones(4), "m2": np.ones(4)}
    run.rows.observed = {f"0.ObsNorm/{name}": value for name, value in moments.items()}
    run.runner.start()
    assert run.rows.given and len(run.rows.statistics) == 1
    run.runner.step()

    assert (run.rows.statistics[-1]["0.ObsNorm/mean"] == 1.0).all()


def test_no_order_is_given_while_updates_are_behind(make: Make) -> None:
    run = make(max_train_frequency=2.0, policy=dict(learn=dict(update_per_collect=4, batch_size=8))).begun(3)
    behind = len(run.rows.given)

    run.runner.step()
    assert len(run.rows.given) == behind

    for _ in range(60):
        run.runner.step()
    assert len(run.rows.given) > behind


def test_updates_keep_the_beat_of_the_clock(make: Make) -> None:
    run = make(max_train_frequency=4.0).begun()
    began_s = run.clock.now

    while run.clock.now < began_s + 10.0:
        run.runner.step()

    assert run.updates == pytest.approx(40, abs=2)


def test_no_update_is_taken_before_the_buffer_has_the_minimum_and_none_is_made_up_for(make: Make) -> None:
    run = make(minimum_buffer_size=100).begun()
    while run.stored < 100:
        assert run.updates == 0
        run.runner.step()

    assert 0 < run.updates <= 8


def test_rows_that_are_too_old_are_dropped_and_counted(make: Make) -> None:
    run = make(max_policy_lag=3).begun()
    for _ in range(6):
        run.runner.step()  # the version that acts stays (1, 0)

    assert run.parts.collector.dropped_rows > 0
    assert run.stored + run.parts.collector.dropped_rows == run.rows.brought - 16


# --- synchronous


def test_a_round_is_shared_among_the_actors_and_put_by_their_places(make: Make) -> None:
    run = make("actor10", "actor2", "actor1", comm="sync", eager=False).begun()

    def bring_last_first() -> None:
        for number in sorted(run.rows.orders, reverse=True):
            run.rows.bring(number)

    run.rows.before_take = bring_last_first
    kept: list[Any] = []
    run.parts.replay_buffer.push = lambda rows, **_: kept.extend(rows["reward"].tolist())  # type: ignore[method-assign]
    run.runner.step()

    assert [(name, rows) for name, rows, *_ in run.rows.given] == [("actor1", 3), ("actor2", 3), ("actor10", 2)]
    assert kept == [1, 1, 1, 2, 2, 2, 10, 10], "although the last came first"
    assert run.updates == 0, "8 rows are fewer than a batch"


def test_a_round_wants_the_weights_of_all_updates_before_it(make: Make) -> None:
    run = make(comm="sync").begun(4)

    assert [extra["least"][1] for *_, extra in run.rows.given] == [0, 0, 4, 8], "16 rows are a batch"
    assert [version.update for version in run.weights.versions] == [0, 4, 8]


def test_what_a_lost_actor_was_to_do_is_done_by_the_one_that_takes_its_place(make: Make) -> None:
    run = make("actor1", "actor2", comm="sync", eager=False).begun()
    calls = iter(range(100))

    def act() -> None:
        call = next(calls)
        if call == 0:
            run.rows.bring(0)
        elif call == 1:
            run.rows.replace("actor2")
        elif call == 3:
            run.rows.bring(2)

    run.rows.before_take = act
    run.runner.step()

    assert [name for name, *_ in run.rows.given] == ["actor1", "actor2", "actor2"]
    assert run.stored == 8 and run.rows.acknowledged == [0, 2]


def test_the_share_of_an_actor_that_left_for_good_is_left_out(make: Make) -> None:
    run = make("actor1", "actor101", comm="sync", eager=False)
    run.workers.strangers = ("actor101",)
    run.runner.start()
    calls = iter(range(100))

    def act() -> None:
        if next(calls) == 0:
            run.rows.bring(0)
            run.rows.states["actor101"] = replace(run.rows.states["actor101"], connected=False)

    run.rows.before_take = act
    run.runner.step()

    assert run.stored == 4
    run.rows.eager = True
    run.runner.step()
    assert run.rows.given[-1][:2] == ("actor1", 8), "the next round is shared by the actors that are left"


def test_a_stranger_that_falls_silent_in_a_round_has_left(make: Make) -> None:
    run = make("actor1", "actor101", comm="sync", eager=False)
    run.workers.strangers = ("actor101",)
    run.runner.start()

    def act() -> None:
        if 0 in run.rows.orders:
            run.rows.bring(0)

    run.rows.before_take = act
    run.runner.step()

    assert run.stored == 4
    assert 60.0 < run.clock.now - 100.0 < 62.0


def test_a_run_that_is_to_end_leaves_a_round_within_a_second(make: Make) -> None:
    run = make("actor1", comm="sync", eager=False).begun()
    run.is_leaving = True
    began_s = run.clock.now

    run.runner.step()

    assert run.clock.now - began_s < 1.0 and run.stored == 0


# --- the begin


def test_random_rows_are_collected_first_and_allow_no_updates(make: Make) -> None:
    run = make(policy=dict(random_collect_size=40)).begun()

    assert run.stored >= 40 and run.updates == 0
    assert run.rows.given[0][1:3] == (40, 0)
    assert run.runner.state_dict()["random_rows"] == 0


def test_random_rows_that_are_missing_at_a_saved_point_are_collected_by_the_resumed_run(make: Make) -> None:
    run = make(policy=dict(random_collect_size=40))
    run.runner.load_state_dict({"rows": {"collected": 0, "granted": 0}, "random_rows": 24})

    assert run.rows.given[0][1] == 24


# --- what goes wrong


def test_lost_workers_end_the_turns_with_their_cause(make: Make) -> None:
    run, error = make(), CommError("the proxy is gone.")
    run.runner.start()
    run.workers.lost = error

    with pytest.raises(RunnerLostError, match=str(error)) as raised:
        run.runner.step()

    assert raised.value.__cause__ is error and run.runner.rescue()


def test_actors_that_bring_nothing_for_too_long_are_named(make: Make) -> None:
    run = make("actor1", "actor2", eager=False).begun()
    began_s = run.clock.now

    with pytest.raises(RunnerLostError, match="actor1, actor2 were asked for rows.*step_timeout_s"):
        while True:
            run.runner.step()

    assert 120 < run.clock.now - began_s < 122, "the supervisor may replace them before"


@pytest.mark.parametrize("comm", ["async", "sync"])
def test_an_evaluation_that_takes_long_holds_up_no_actor(make: Make, comm: str) -> None:
    run = make("actor1", "actor2", comm=comm, eager=False).begun()
    given = len(run.rows.given)
    looks = iter(range(1000))

    def bring_at_the_third_look() -> None:
        for number in sorted(run.rows.orders) if next(looks) >= 2 else []:
            run.rows.bring(number)

    run.rows.before_take = bring_at_the_third_look
    run.clock.now += 1000.0
    while not run.stored:
        run.runner.step()

    assert len(run.rows.given) > given


def test_what_sources_report_is_logged(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    run = make().begun()
    run.rows.reported = [("actor7", "no space left")]

    run.runner.step()

    assert "actor7: no space left" in caplog.text


# --- reports


def test_the_panel_and_the_metrics_have_the_numbers_of_inference_and_actors(make: Make) -> None:
    run = make()
    for name in ("server1", "server2"):
        run.rows.states[name] = Source(name, "server", 1)
    run.rows.numbers = {
        "server1": {"requests": 9, "mean_batch": 3.5, "p50_ms": 1.0, "p99_ms": 2.0, "queue": 4},
        "server2": {"requests": 9, "mean_batch": None, "p50_ms": None, "p99_ms": None, "queue": 0},
        "actor1": {"p50_ms": 1.5, "p99_ms": 8.0},
    }
    run.rows.states["actor1"] = replace(run.rows.states["actor1"], refused=2)
    run.runner.start()
    for _ in range(3):
        run.runner.step()
        run.clock.now += 1

    said = run.runner.workers()

    assert said["batch"] == "3.5 observations" and said["latency"] == "1.5 ms p50, 8 ms p99"
    assert said["queue"] == "4 requests, 3 segments" and said["policy lag"] and said["data age"]
    assert said["actor1"].endswith("env steps/s") and said["failures"] == "none lost"
    numbers = run.parts.collector.beside()
    assert numbers["mean_batch"] == 3.5 and numbers["inference_p99_ms"] == 8.0
    assert numbers["inference_queue"] == 4 and numbers["queue_depth"] == 3
    assert "envstep_per_sec/actor1" in numbers
    assert {key for key in numbers if "refused" in key} == {"refused_segments/actor1"}


def test_the_details_have_the_processes_of_this_machine_and_of_others(make: Make) -> None:
    run = make()
    slots = [Slot(name, lambda number: None, sources) for name, sources in (  # type: ignore[arg-type,return-value]
        ("server1", ("server1",)), ("actor_process1", ("actor1", "actor2")), ("actor_process2", ()),
    )]  # fmt: skip
    slots[0].state, slots[2].state = "working", "waiting"
    run.workers.slots = [(slots[0], 11), (slots[1], 12), (slots[2], None)]
    run.rows.states["actor701"] = Source("actor701", "actor", 1, heard_s=run.clock.now, refused=3)
    run.rows.states["host7"] = Source("host7", "host", 1)
    run.workers.log.note("actor_process2", how="was killed by SIGKILL", rows_lost=4)
    run.runner.start()
    for _ in range(3):
        run.runner.step()
        run.clock.now += 1

    details = run.runner.details()

    found = {each.name: each for each in details.processes}
    assert list(found) == ["server1", "actor_process1", "actor_process2", "actor701"]
    assert (found["server1"].state, found["actor_process1"].state) == ("running", "starting")
    assert (found["actor_process1"].pid, found["actor_process2"].state) == (12, "lost")
    assert found["actor_process1"].env_steps_per_s and found["actor_process1"].policy_lag is not None
    assert found["actor701"].host == "not known" and found["actor701"].heartbeat_s == 3.0
    assert details.failures[0].cause == "was killed by SIGKILL"
    assert details.lost_rows["refused from actor701"] == 3 and details.lost_rows["lost with their worker"] == 4


def test_the_state_is_what_a_resumed_run_goes_on_from(make: Make) -> None:
    run = make().begun(4)
    state = run.runner.state_dict()

    assert state["rows"]["collected"] == run.stored and state["rows"]["granted"] >= run.updates
    assert np.isclose(state["random_rows"], 0)
