import math

import pytest

from ding_like.report.run_console import Limits, Progress, Speed, describe_line, describe_rows
from ding_like.report.scores import clock, measure, short


def make_progress(**changes) -> Progress:
    known = dict(env_step=500, train_iter=200, duration_s=10.0, eval_duration_s=1.0, mean_return=21.5)
    return Progress(**{**known, **changes})


def make_speed(limits: Limits, *reports: Progress) -> Speed:
    speed = Speed(limits)
    for report in reports:
        speed.add(report)
    return speed


def test_limits_are_described_by_what_ends_the_run():
    for limits, text in [
        (Limits(), "interrupted"),
        (Limits(1e10, 1e10, 1e10), "interrupted"),
        (Limits(100_000, 1e10, 475), "eval >= 475 or 100,000 env steps"),
        (Limits(max_train_iter=20), "20 updates"),
    ]:
        assert limits.describe() == text


def test_the_budget_that_counts_is_the_one_used_up_first():
    limits = Limits(max_env_step=1000, max_train_iter=100)

    assert limits.nearest(500, 80) == (0.8, 80, 100, "updates")
    assert limits.nearest(900, 80) == (0.9, 900, 1000, "env steps")
    assert Limits(stop_value=475).nearest(500, 80) is None


def test_speeds_are_those_of_the_last_ten_seconds():
    slow_then_fast = [
        make_progress(env_step=step, train_iter=step // 2, duration_s=time)
        for time, step in ((0, 0), (10, 10), (20, 20), (25, 1020), (30, 2020))
    ]

    steps, updates = make_speed(Limits(), *slow_then_fast).speeds

    assert steps == pytest.approx(200) and updates == pytest.approx(100)


def test_time_left_goes_by_the_speed_since_this_process_began():
    limits = Limits(max_env_step=1000)

    # Resumed at 400 after an hour; 100 steps took 10 s, so 500 more take 50 s.
    speed = make_speed(
        limits, make_progress(env_step=400, duration_s=3600), make_progress(env_step=500, duration_s=3610)
    )

    assert speed.eta_s == pytest.approx(50)


@pytest.mark.parametrize("limits", [Limits(stop_value=475), Limits(max_env_step=1000)])
def test_time_left_is_unknown_without_a_budget_or_before_a_step(limits):
    assert math.isnan(make_speed(limits, make_progress(), make_progress()).eta_s)


def test_rows_tell_rollout_evaluation_learning_and_speed():
    before = make_progress(env_step=0, train_iter=0, duration_s=0)
    progress = make_progress(
        mean_length=21.5,
        eval_returns=[100.0, 200.0],
        best_eval=180.0,
        setting={"eps": 0.25, "mask": None},
        learn={"q_value": 4.5, "total_loss": 0.021, "train_time": 1.0},
    )

    rows = dict(describe_rows(progress, make_speed(Limits(), before, progress)))

    assert rows["rollout"] == [("return", "21.5"), ("length", "21.5"), ("eps", "0.25")]
    assert rows["eval"] == [("mean", "150 [100, 200]"), ("95% CI of", "2 episodes"), ("best", "180")]
    assert rows["learn"] == [("loss", "0.021"), ("q", "4.5")]
    assert rows["speed"] == [("", "50 env steps/s"), ("", "20 updates/s"), ("evaluation", "10% of the time")]


def test_rows_leave_out_what_is_not_there_yet():
    progress = Progress(env_step=0, train_iter=0, duration_s=0.0)

    assert describe_rows(progress, make_speed(Limits(), progress)) == [("rollout", [("return", "-")])]


def test_line_holds_the_gist():
    limits = Limits(max_env_step=1000)
    learn = {"total_loss": 2.0, "q_value": 1.0}
    progress = make_progress(mean_length=21.5, eval_returns=[9.0], setting={"eps": 0.5}, learn=learn)
    speed = make_speed(limits, make_progress(env_step=0, duration_s=0), progress)

    line = describe_line(progress, speed, limits)

    assert line == (
        "env step 500 (50%, 0:00:10 left)  iter 200  return 21.5  eps 0.5  eval 9 [9, 9]  loss 2  50 env steps/s  "
        "eval time 10%"
    )


def test_measures_show_the_digits_that_matter():
    for value, text in [
        (0.02134, "0.0213"),
        (46.24, "46.2"),
        (475.0, "475"),
        (-1234.5, "-1,234"),
        (math.nan, "-"),
        (-math.inf, "-inf"),
    ]:
        assert measure(value) == text


def test_counts_are_short():
    for value, text in [
        (0, "0"),
        (500, "500"),
        (17900, "17.9k"),
        (20000, "20k"),
        (1.5e6, "1.5M"),
        (999.7, "1000"),
        (1e10, "1e+10"),
    ]:
        assert short(value) == text


def test_durations_read_as_a_clock():
    for seconds, text in [(0, "0:00:00"), (59.6, "0:01:00"), (3725, "1:02:05")]:
        assert clock(seconds) == text
