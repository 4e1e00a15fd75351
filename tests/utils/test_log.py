"""One console handler, one file per logger."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.utils import log
from ding_like.utils.log import build_logger, close_logger, one_time_warning, setup_console


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
