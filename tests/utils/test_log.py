"""One console handler, one file per logger."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.errors import ConfigError
from ding_like.utils import log
from ding_like.utils.log import (
    build_logger,
    close_logger,
    log_to_file,
    one_time_warning,
    setup_console,
    shown_as_by_the_command,
)


@pytest.fixture(autouse=True)
def restore_package_logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = log.PACKAGE_LOGGER
    handlers, level = package.handlers[:], package.level
    monkeypatch.setattr(log, "_console_handler", None)
    yield
    package.handlers[:] = handlers
    package.setLevel(level)


def fake_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_piped_console_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    setup_console()

    logging.getLogger("ding_like.somewhere").info("return [12.5] reached")

    shown = capsys.readouterr()
    assert shown.out.endswith(" return [12.5] reached\n")
    assert "\x1b" not in shown.out
    assert shown.err == ""


def test_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake_terminal(monkeypatch)

    setup_console()
    logging.getLogger("ding_like").info("return 12.5")

    assert "\x1b[" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_terminal_without_colour_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    fake_terminal(monkeypatch)
    monkeypatch.setenv(name, value)

    setup_console()
    logging.getLogger("ding_like").info("return 12.5")

    assert "\x1b" not in capsys.readouterr().out


def test_control_characters_are_shown_escaped_in_console_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup_console()
    logger, _ = build_logger(tmp_path, "evil", to_console=True)

    logger.warning("bad \x1b]0;title\x07 \x9b31m \tname\nnext line")
    close_logger(logger)

    for shown in (capsys.readouterr().out, (tmp_path / "evil_logger.txt").read_text()):
        assert shown.endswith("bad \\x1b]0;title\\x07 \\x9b31m \tname\nnext line\n")


def test_bytes_of_a_name_that_are_no_text_are_shown_escaped() -> None:
    assert str(ConfigError("a \udc9b name")) == "a \\udc9b name"


def test_second_setup_does_not_show_lines_twice(capsys: pytest.CaptureFixture[str]) -> None:
    setup_console()
    setup_console()

    logging.getLogger("ding_like").info("once")

    assert capsys.readouterr().out.count("once") == 1


def test_console_names_the_level_of_warnings_and_hides_what_is_below(capsys: pytest.CaptureFixture[str]) -> None:
    setup_console(logging.INFO)

    logging.getLogger("ding_like").debug("hidden")
    logging.getLogger("ding_like").warning("careful")

    shown = capsys.readouterr().out
    assert "WARNING:" in shown and "careful" in shown
    assert "hidden" not in shown


def test_logger_appends_to_its_file_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup_console()
    logger, writer = build_logger(tmp_path / "log", "collector")

    logger.info("8 samples")
    close_logger(logger)

    assert writer is None
    assert (tmp_path / "log" / "collector_logger.txt").read_text().endswith("[INFO] 8 samples\n")
    assert capsys.readouterr().out == ""


def test_logger_reaches_the_console_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup_console()
    logger, _ = build_logger(tmp_path, "evaluator", to_console=True)

    logger.info("mean return 475")
    close_logger(logger)

    assert "mean return 475" in capsys.readouterr().out


def test_equal_names_in_two_folders_do_not_mix(tmp_path: Path) -> None:
    first, _ = build_logger(tmp_path / "a", "learner")
    second, _ = build_logger(tmp_path / "b", "learner")

    first.info("first")
    second.info("second")
    close_logger(first)
    close_logger(second)

    assert "second" not in (tmp_path / "a" / "learner_logger.txt").read_text()


def test_closed_logger_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger, _ = build_logger(tmp_path, "learner")
    close_logger(logger)
    close_logger(logger)

    logger.warning("too late")

    assert not (tmp_path / "learner_logger.txt").exists()
    assert capsys.readouterr() == ("", "")


def test_need_tb_gives_a_writer_beside_the_log(tmp_path: Path) -> None:
    _, writer = build_logger(tmp_path, "buffer", need_tb=True)

    assert writer is not None
    writer.add_scalar("buffer_iter/count", 3.0, 1)
    writer.close()

    assert len(list((tmp_path / "buffer_tb_logger").iterdir())) == 1


def test_one_time_warning_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    message = f"n_sample does not divide {uuid.uuid4()}"

    one_time_warning(message)
    one_time_warning(message)

    assert [record.message for record in caplog.records] == [message]


def take_logging_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what pytest itself has set up, which it does after fixtures."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.delenv("DING_LIKE_QUIET", raising=False)


@shown_as_by_the_command()
def speak() -> str:
    logging.getLogger("ding_like.x").info("hello")
    return "said"


def test_a_program_without_logging_sees_what_the_command_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take_logging_away(monkeypatch)

    assert speak() == speak() == "said"

    assert capsys.readouterr().out.count(" hello\n") == 2
    assert log.PACKAGE_LOGGER.handlers == [] and log.PACKAGE_LOGGER.level == logging.NOTSET


def test_the_command_shows_nothing_twice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    take_logging_away(monkeypatch)
    setup_console()

    speak()

    assert capsys.readouterr().out.count("hello") == 1 and len(log.PACKAGE_LOGGER.handlers) == 1


@pytest.mark.parametrize("name", ["", "ding_like", "DING_LIKE_QUIET"])
def test_a_program_that_has_its_own_logging_or_wants_none_is_left_alone(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take_logging_away(monkeypatch)
    if name == "DING_LIKE_QUIET":
        monkeypatch.setenv(name, "1")
    else:
        monkeypatch.setattr(logging.getLogger(name), "handlers", [logging.NullHandler()])

    speak()

    assert "hello" not in capsys.readouterr().out


def test_equal_warnings_are_shown_once_and_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    setup_console()
    log.REPEATS.begin()
    logger = logging.getLogger("ding_like.envs")

    for number in (1, 2, 1, 1):
        logger.warning("env %d fell over\nfor a reason", number)
        logger.info("step")

    out = capsys.readouterr().out
    assert [out.count(each) for each in ("env 1 fell", "env 2 fell", "step")] == [1, 1, 4]
    assert log.REPEATS.take_summary() == ["2 more times: env 1 fell over"]
    assert log.REPEATS.take_summary() == []
    with log_to_file(tmp_path / "log.txt"):
        logger.warning("env 1 fell over\nfor a reason")
    assert log.REPEATS.take_summary() == ["1 more time: env 1 fell over"]


def test_another_run_says_a_warning_again(capsys: pytest.CaptureFixture[str]) -> None:
    setup_console()
    for _ in range(2):
        log.REPEATS.begin()
        logging.getLogger("ding_like.envs").warning("env 1 fell over")

    assert capsys.readouterr().out.count("env 1 fell over") == 2
