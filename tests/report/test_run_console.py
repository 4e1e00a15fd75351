import io
import logging
import math
import sys
import threading

import pytest
from rich.console import Console
from rich.logging import RichHandler

from ding_like.report.run_console import Limits, Progress, RunConsole, Speed, describe_line, describe_rows
from ding_like.report.scores import clock, measure, short
from ding_like.utils.log import PACKAGE_LOGGER
from tests.support import Clock, wait_until


class SlowTerminal(io.StringIO):
    """Terminal on which every write takes a while."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def write(self, text: str) -> int:
        self.clock.now += 0.5
        return super().write(text)


class LostTerminal(io.StringIO):
    """Terminal that is lost once a test sets `is_lost`."""

    is_lost = False
    num_lost = 0

    def write(self, text: str) -> int:
        if self.is_lost:
            self.num_lost += 1
            raise OSError(5, "Input/output error")
        return super().write(text)


def progress(env_step: int = 500) -> Progress:
    return Progress(env_step=env_step, train_iter=7, duration_s=env_step / 100, eval_returns=[90.0, 110.0])


@pytest.fixture
def log_to():
    """Return a function that shows the package's log on a terminal, as the command line does."""
    handlers = []

    def show(file: io.StringIO) -> io.StringIO:
        console = Console(file=file, force_terminal=True, width=100, height=30)
        handlers.append(RichHandler(console=console, show_level=False, show_path=False))
        PACKAGE_LOGGER.addHandler(handlers[-1])
        PACKAGE_LOGGER.setLevel(logging.INFO)
        return file

    yield show
    for handler in handlers:
        PACKAGE_LOGGER.removeHandler(handler)
    PACKAGE_LOGGER.setLevel(logging.NOTSET)


def test_terminal_gets_a_panel_below_the_log(log_to):
    screen = log_to(io.StringIO())

    with RunConsole("my_exp", Limits(max_env_step=1000), opening=["ding_like 0"]) as console:
        console.start(progress(0))
        console.update(progress())
        console.event("a new best model")
        console.close_summary(["solved  it"])

    text = screen.getvalue()
    assert text.index("ding_like") < text.index("my_exp") < text.index("a new best") < text.rindex("solved")
    for words in ("500/1,000 env steps", "ETA 0:00:05", "100 [90, 110]", "100 env steps/s"):
        assert words in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is hidden once and shown again"


def test_control_characters_of_a_name_are_shown_escaped(log_to):
    terminal = log_to(io.StringIO())

    with RunConsole("exp\x1b]0;a", Limits()) as console:
        console.print(["wrote exp\x1b]0;b"])
        console.start(progress())

    assert r"exp\x1b]0;a" in terminal.getvalue() and r"exp\x1b]0;b" in terminal.getvalue()
    assert "\x1b]" not in terminal.getvalue()


def test_panel_without_a_budget_has_no_bar(log_to):
    screen = log_to(io.StringIO())

    with RunConsole("my_exp", Limits(stop_value=475)) as console:
        console.update(progress())

    assert "until eval >= 475" in screen.getvalue() and "ETA" not in screen.getvalue()


def test_a_run_that_another_process_shows_shows_nothing(log_to):
    screen = log_to(io.StringIO())

    with RunConsole("my_exp", Limits(), opening=["ding_like 0"], is_shown=False) as console:
        with console.phase("building envs"):
            console.start(progress(0))
        console.update(progress())
        console.event("a new best model")

    assert not screen.getvalue() and not console.is_due


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_error_gives_the_terminal_back(log_to, error):
    screen, stdout, num_threads = log_to(io.StringIO()), sys.stdout, threading.active_count()

    with pytest.raises(error), RunConsole("my_exp", Limits()) as console:
        console.update(progress())
        assert threading.active_count() == num_threads
        raise error

    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")
    assert sys.stdout is stdout


def test_print_of_an_env_goes_above_the_panel(log_to):
    screen = log_to(io.StringIO())

    with RunConsole("my_exp", Limits()) as console:
        console.update(progress())
        print("hello from an env")

    assert "hello from an env" in screen.getvalue()


def test_slow_terminal_is_left_alone_a_hundred_times_as_long_as_it_takes(log_to):
    clock = Clock(0.0)
    log_to(SlowTerminal(clock))

    with RunConsole("my_exp", Limits(), clock=clock) as console:
        started = clock.now
        console.update(progress())
        took = clock.now - started
        clock.now += 99 * took
        was_due = console.is_due
        clock.now += 2 * took

        assert took > 0 and not was_due and console.is_due


def test_run_goes_on_without_a_terminal_that_went_away(log_to, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    terminal = log_to(LostTerminal())

    with RunConsole("my_exp", Limits()) as console:
        console.update(progress())
        terminal.is_lost = True
        console.update(progress(600))
        console.update(progress(700))

    assert terminal.num_lost > 0, "a write was tried"


def test_elsewhere_a_line_is_due_every_ten_seconds(caplog):
    caplog.set_level(logging.INFO)
    clock = Clock(0.0)

    with RunConsole("my_exp", Limits(max_env_step=1000), opening=["ding_like 0"], clock=clock) as console:
        console.start(progress(0))
        clock.now = 9.9
        early = console.is_due
        clock.now = 10.0
        assert console.is_due and not early
        console.update(progress())
        assert not console.is_due
        console.close_summary(["solved  it"])

    assert caplog.messages[0] == "ding_like 0"
    assert caplog.messages[1].startswith("env step 500 (50%, 0:00:05 left)  iter 7")
    assert caplog.messages[2:] == ["solved  it"]
    assert "\x1b" not in caplog.text


def test_library_use_without_logging_shows_nothing(capfd):
    with RunConsole("my_exp", Limits(), opening=["ding_like 0"]) as console:
        console.update(progress())

    assert capfd.readouterr() == ("", "")


def test_the_panel_is_there_before_there_is_anything_to_report_and_keeps_time(log_to):
    screen = log_to(io.StringIO())

    with RunConsole("my_exp", Limits(max_env_step=1000)) as console:
        with console.phase("building envs"):
            assert "building envs" in screen.getvalue() and "my_exp" in screen.getvalue()
            wait_until(lambda: "0:00:01" in screen.getvalue())
        console.start(progress(0))
        assert "0/1,000 env steps" in screen.getvalue()


def test_a_phase_of_a_run_is_shown_below_its_panel(log_to):
    screen = log_to(io.StringIO())

    with RunConsole("my_exp", Limits(max_env_step=1000)) as console:
        console.start(progress(500))
        before, num_threads = len(screen.getvalue()), threading.active_count()
        with console.phase("evaluating"):
            assert len(screen.getvalue()) == before, "a short phase draws nothing"
            wait_until(lambda: "evaluating" in screen.getvalue())
        assert threading.active_count() == num_threads
        console.update(progress(600))

        with console.phase("drawing"):
            wait_until(lambda: "drawing" in screen.getvalue())
        console.close_summary(["solved  it"])

    assert "evaluating" not in screen.getvalue().rpartition("600/1,000")[2]
    assert "drawing" not in screen.getvalue().rpartition("600/1,000")[2], "what stays says no phase"


def test_a_start_that_fails_leaves_no_panel(log_to):
    screen = log_to(io.StringIO())

    with pytest.raises(ValueError, match="no env"), RunConsole("my_exp", Limits()) as console:
        with console.phase("building envs"):
            raise ValueError("no env")

    assert "\x1b[2K" in screen.getvalue().rpartition("building envs")[2], "it is wiped out"


def test_elsewhere_a_long_phase_is_a_line(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("ding_like.report.run_console._LINE_EVERY_S", 0.01)

    with RunConsole("my_exp", Limits()) as console, console.phase("building envs"):
        wait_until(lambda: caplog.messages)

    assert caplog.messages[0] == "building envs: 0:00:00 so far"


def test_a_terminal_that_goes_away_in_a_phase_ends_nothing(log_to, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    terminal = log_to(LostTerminal())

    with RunConsole("my_exp", Limits()) as console:
        console.start(progress())
        with console.phase("evaluating"):
            terminal.is_lost = True
            wait_until(lambda: terminal.num_lost > 0)
        console.update(progress(600))


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
