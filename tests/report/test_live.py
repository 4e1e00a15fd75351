"""State of a run for its page: what is kept, what a reader gets, and how the run is stopped and saved."""

from __future__ import annotations

import itertools
import json
import logging
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ding_like.errors import TrainingError
from ding_like.report.details import BufferUse, Details, Failure, ProcessReport
from ding_like.report.live import LiveRun, ThinnedSeries
from ding_like.report.run_console import WATCHERS, Limits, Progress, RunConsole
from ding_like.utils.log import PACKAGE_LOGGER
from tests.support import Clock

LIMITS = Limits(max_env_step=10_000, stop_value=195)


@pytest.fixture
def live(caplog: pytest.LogCaptureFixture) -> Iterator[LiveRun]:
    """Return a watcher of the runs that the test begins."""
    found = LiveRun(clock=Clock())
    caplog.set_level(logging.INFO, PACKAGE_LOGGER.name)  # by setLevel: loggers keep what they found enabled before
    found.open()
    WATCHERS.append(found)
    yield found
    WATCHERS.remove(found)
    found.close()


def progress(env_step: int = 1_000, **more: Any) -> Progress:
    known = {"train_iter": env_step // 2, "duration_s": env_step / 100, "mean_return": 20.0}
    return Progress(env_step, **{**known, **more})


def test_a_series_is_thinned_by_halves_and_stays_spread_over_all_that_was_added() -> None:
    series = ThinnedSeries(most=100)

    for number in range(86_400):
        series.add(number, math.sqrt(number))

    places = [row[0] for row in series.rows]
    assert 50 <= len(places) <= 100 and places[0] == 0
    assert {later - earlier for earlier, later in itertools.pairwise(places)} == {series.stride}
    assert places[-1] is not None and 86_400 - places[-1] <= series.stride


def test_a_day_of_progress_and_log_takes_bounded_memory(live: LiveRun) -> None:
    with RunConsole("run", LIMITS) as console:
        console.start(progress(0))
        for second in range(30_000):
            live.take_progress(progress(second))
            live.take_line(f"line {second}")
        state = live.state()

    assert len(state.rollouts.rows) <= 1_000 and len(state.log) == 200 and state.log[-1].endswith("line 29999")
    assert len(json.dumps(state.to_plain())) < 200_000


def test_the_state_has_what_the_run_reported(live: LiveRun) -> None:
    with RunConsole("my_run", LIMITS, opening=["an opening line"]) as console:
        console.resume_command, console.saved_at = "ding --resume my_run", "env step 500"
        console.details = lambda: Details(
            processes=[ProcessReport("collector0", 7, "far-away", heartbeat_s=1.0, policy_lag=3.0)],
            failures=[Failure("collector1", "12:00", "was killed by SIGKILL", 64, "replaced after 12 ms")],
            lost_rows={"too old": 5},
            policy_lag=2.5,
            buffer=BufferUse(400, 1_000),
        )
        console.start(progress(0, duration_s=0.0))
        console.note_evaluation([100.0, 120.0, 110.0], env_step=900, train_iter=450)
        console.update(progress(learn={"loss": 0.5}, setting={"eps": math.nan, "name": "no number"}, best_eval=110.0))
        with console.phase("evaluating"):
            state = live.state()

    assert (state.status, state.experiment, state.phase) == ("running", "my_run", "evaluating")
    assert state.until == "eval >= 195 or 10,000 env steps" and state.resume_command == "ding --resume my_run"
    assert (state.env_step, state.fraction, state.eta_s) == (1_000, 0.1, pytest.approx(90.0))
    assert state.eval_mean == 110.0 and state.eval_episodes == 3
    low, high = state.eval_interval or (0.0, 0.0)
    assert 100.0 <= low < 110.0 < high <= 120.0
    assert list(state.evals.rows) == [(900, 450, 0.0, 110.0, low, high)]
    assert state.learn == {"loss": 0.5} and state.setting == {"eps": None}
    assert state.lost_rows == {"too old": 5} and state.failures[0].cause == "was killed by SIGKILL"
    assert [row.name for row in state.processes][:2] == ["main", "collector0"]
    assert "an opening line" in state.log[0]
    plain = json.dumps(state.to_plain(), allow_nan=False)
    assert json.loads(plain)["processes"][1]["policy_lag"] == 3.0


def test_the_oldest_row_is_as_old_as_the_env_step_that_it_is_of(live: LiveRun) -> None:
    with RunConsole("run", LIMITS) as console:
        console.details = lambda: Details(buffer=BufferUse(300, 300))
        for step in range(100, 1_001, 100):
            console.update(progress(step, duration_s=step / 10))
        assert live.state().oldest_row_s == pytest.approx(30.0)


def test_a_cursor_gets_what_is_new_alone(live: LiveRun) -> None:
    with RunConsole("run", LIMITS) as console:
        console.update(progress(100))
        console.note_evaluation([1.0], env_step=100, train_iter=1)
        first = live.state()
        console.update(progress(200))
        live.take_line("new")
        second = live.state(first.cursor)
        again = live.state(second.cursor)
        for number in range(2_000):
            live.take_progress(progress(number))
        thinned = live.state(second.cursor)

    assert (second.rollouts.start, [row[0] for row in second.rollouts.rows]) == (1, [200])
    assert (second.evals.start, second.evals.rows) == (1, []) and second.log[-1] == "new"
    assert (again.rollouts.rows, list(again.log)) == ([], [])
    assert thinned.rollouts.start == 0 and len(thinned.rollouts.rows) > 500


@pytest.mark.parametrize("cursor", ["", "x", "1:2", "1:-3-1:99999-7", "1:1-1:1--5", "9" * 200])
def test_any_other_cursor_gets_all(live: LiveRun, cursor: str) -> None:
    with RunConsole("run", LIMITS) as console:
        console.update(progress(100))
        state = live.state(cursor)
    assert state.rollouts.start == 0 and len(state.rollouts.rows) == 1 and state.log


def test_details_are_looked_at_when_they_are_asked_for_and_at_most_once_a_second(live: LiveRun) -> None:
    looks = []
    with RunConsole("run", LIMITS) as console:
        console.details = lambda: looks.append(1) or Details()  # type: ignore[func-returns-value]
        console.update(progress())
        before = len(looks)
        live.state()
        live.state()
        live._clock.advance(1.0)  # type: ignore[attr-defined]
        live.state()
    assert (before, len(looks)) == (0, 2)


def test_watchers_have_progress_each_second_and_the_log_its_line_every_ten(
    live: LiveRun, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ding_like")
    clock = Clock()
    with RunConsole("run", LIMITS, clock=clock) as console:
        console.start(progress(0))
        for second in range(1, 31):
            clock.advance(0.5)
            early = console.is_due
            clock.advance(0.5)
            assert console.is_due and not early
            console.show(progress(second))
        num_points = len(live.state().rollouts.rows)

    assert num_points == 31
    assert sum("env step" in record.message for record in caplog.records) == 3


@pytest.mark.parametrize(
    "error, status, why",
    [
        (None, "ended", "solved: an evaluation reached 195"),
        (KeyboardInterrupt(), "interrupted", "solved: an evaluation reached 195"),
        (SystemExit(143), "interrupted", "solved: an evaluation reached 195"),
        (TrainingError("collector1 was lost"), "failed", "TrainingError: collector1 was lost"),
    ],
)
def test_the_end_has_its_reason(live: LiveRun, error: BaseException | None, status: str, why: str) -> None:
    console = RunConsole("run", LIMITS)
    try:
        with console:
            console.outcome = LIMITS.describe_end(stop=True, env_step=5_000, train_iter=9)
            if error is not None:
                raise error
    except BaseException as raised:
        assert raised is error
    state = live.state()
    assert (state.status, state.why, state.phase) == (status, why, "")
    assert not state.is_last and not state.can_save


def test_a_limit_that_ended_a_run_is_named() -> None:
    assert LIMITS.describe_end(stop=False, env_step=10_008, train_iter=3) == "at its limit of 10,000 env steps"
    timed = Limits(max_duration_s=20.0)
    assert timed.describe_end(stop=False, env_step=10, train_iter=3) == "at its limit of 20 s of training"


def test_stop_is_one_signal_as_of_ctrl_c(live: LiveRun) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        assert live.stop() == "no run goes on"
        with RunConsole("run", LIMITS):
            stopper = threading.Thread(target=live.stop)
            stopper.start()
            stopper.join()
            assert live.state().status == "stopping"
            assert "already" in live.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGINT]


def test_a_run_that_ignores_ctrl_c_is_stopped_by_sigterm(live: LiveRun) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, lambda *_: received.append(1))
    try:
        with RunConsole("run", LIMITS):
            assert live.stop() == ""
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert received == [1]


def test_a_save_is_asked_for_once(live: LiveRun) -> None:
    with RunConsole("run", LIMITS) as console:
        assert "saves no points on request" in live.save()
        console.save_asked = threading.Event()
        assert not console.take_save_request()
        assert live.save() == "" and live.state().can_save
        assert console.take_save_request() and not console.take_save_request()
    assert "saves no points on request" in live.save()


def test_the_last_state_is_waited_for_only_where_it_was_asked_for_lately(live: LiveRun) -> None:
    with RunConsole("run", LIMITS):
        pass
    assert not live.give_last_state(30.0), "no reader has asked for anything"

    live.state()
    reader = threading.Timer(0.05, live.state)
    reader.start()
    assert live.give_last_state(30.0)
    reader.join()
    assert live.state().is_last


def test_of_several_runs_in_one_process_the_last_one_is_shown(live: LiveRun) -> None:
    with RunConsole("expert", LIMITS) as console:
        console.update(progress())
        console.note_evaluation([5.0], env_step=1, train_iter=1)
    first = live.state()
    with RunConsole("agent", LIMITS):
        second = live.state(first.cursor)

    assert (first.experiment, first.status) == ("expert", "ended")
    assert (second.experiment, second.status, second.env_step, second.eval_mean) == ("agent", "starting", 0, None)
    assert (second.evals.start, second.evals.rows) == (0, [])


def test_once_a_run_has_ended_its_processes_have_and_those_that_stay_do_not(live: LiveRun) -> None:
    boot = [sys.executable, "-c", "from threading import Event; Event().wait(60)"]
    with subprocess.Popen(boot) as ending, subprocess.Popen(boot) as staying:
        with RunConsole("run", LIMITS) as console:
            reports = [ProcessReport("a", ending.pid), ProcessReport("b", staying.pid), ProcessReport("c", 5, "far")]
            console.details = lambda: Details(processes=reports)
            live.state()
        ending.kill()
        ending.wait()
        live.give_last_state(0.0)
        states = {row.name: row.state for row in live.state().processes}
        staying.kill()

    assert [states[name] for name in ("main", "a", "b", "c")] == ["ended", "ended", "running", "running"]


def test_a_run_that_is_not_shown_is_not_watched(live: LiveRun) -> None:
    with RunConsole("shown", LIMITS), RunConsole("not_shown", LIMITS, is_shown=False) as hidden:
        hidden.update(progress(7))
        assert live.state().experiment == "shown" and live.state().env_step == 0
