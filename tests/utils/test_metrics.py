"""metrics.jsonl, TensorBoard events and writers of other makers."""

from __future__ import annotations

import errno
import json
import logging
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboardX.proto.event_pb2 import Event

from ding_like.errors import CheckpointError, ConfigError, SchemaError
from ding_like.utils import log
from ding_like.utils.checkpoint import save_state
from ding_like.utils.log import (
    build_logger,
    close_logger,
    log_to_file,
    one_time_warning,
    setup_console,
    shown_as_by_the_command,
)
from ding_like.utils.metrics import EventWriter, MetricsSink, as_metrics_writer


def read_lines(exp_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (exp_dir / "metrics.jsonl").read_text().splitlines()]


def read_scalars(path: Path) -> list[tuple[str, float, int]]:
    """Return (tag, value, step) of an event file, whose records are: length, its checksum, data, its checksum."""
    data, scalars = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        scalars += [(value.tag, value.simple_value, event.step) for value in event.summary.value]
        data = data[16 + length :]
    return scalars


def event_files(exp_dir: Path) -> list[Path]:
    return sorted((exp_dir / "log" / "serial").glob("events.out.tfevents.*"), key=lambda path: int(path.suffix[1:]))


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[MetricsSink]:
    sink = MetricsSink(tmp_path)
    yield sink
    sink.close()


def test_write_makes_one_json_line(sink: MetricsSink, tmp_path: Path) -> None:
    sink.write("learner", {"loss": 0.5, "lr": 1}, env_step=80, train_iter=10)

    (line,) = read_lines(tmp_path)
    assert line.pop("time_s") >= 0
    assert line == {"source": "learner", "env_step": 80, "train_iter": 10, "loss": 0.5, "lr": 1}


def test_every_number_becomes_valid_json(sink: MetricsSink, tmp_path: Path) -> None:
    for value, expected in [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array(2.5), 2.5),
        (torch.tensor(1.5), 1.5),
        (float("nan"), "nan"),
        (np.float32("inf"), "inf"),
        (float("-inf"), "-inf"),
    ]:
        sink.write("learner", {"x": value}, env_step=0, train_iter=0)

        assert read_lines(tmp_path)[-1]["x"] == expected


def test_what_is_not_one_number_is_refused(sink: MetricsSink, tmp_path: Path) -> None:
    for value in ["0.5", None, np.zeros(2), torch.zeros(2), [1.0]]:
        with pytest.raises(SchemaError, match="metric 'x' of learner is .* expected one number"):
            sink.write("learner", {"x": value}, env_step=0, train_iter=0)
        assert not (tmp_path / "metrics.jsonl").exists()


def test_metric_named_like_a_field_of_the_line_is_refused(sink: MetricsSink) -> None:
    with pytest.raises(SchemaError, match="collector reports metrics named .*env_step.* rename"):
        sink.write("collector", {"env_step": 3}, env_step=0, train_iter=0)


def test_tensorboard_gets_the_tags_of_both_axes(sink: MetricsSink, tmp_path: Path) -> None:
    sink.write("collector", {"reward_mean": 9.5, "count": 2}, env_step=80, train_iter=10)
    sink.flush()

    (path,) = event_files(tmp_path)
    assert read_scalars(path) == [
        ("collector_iter/reward_mean", 9.5, 10),
        ("collector_iter/count", 2, 10),
        ("collector_step/reward_mean", 9.5, 80),
        ("collector_step/count", 2, 80),
    ]


def test_unknown_step_is_left_out_of_tensorboard(sink: MetricsSink, tmp_path: Path) -> None:
    sink.write("learner", {"loss": 0.5}, env_step=-1, train_iter=10)
    sink.flush()

    assert read_scalars(event_files(tmp_path)[0]) == [("learner_iter/loss", 0.5, 10)]


def test_add_scalar_writes_to_tensorboard_only(sink: MetricsSink, tmp_path: Path) -> None:
    sink.add_scalar("mine/x", 0.5, 7)
    sink.flush()

    assert read_scalars(event_files(tmp_path)[0]) == [("mine/x", 0.5, 7)]
    assert not (tmp_path / "metrics.jsonl").exists()


def test_there_is_no_file_without_a_write_and_no_event_file_without_tensorboard(sink, tmp_path) -> None:
    sink.flush()
    sink.close()
    assert list(tmp_path.iterdir()) == []

    sink = MetricsSink(tmp_path, tensorboard=False)
    sink.write("learner", {"loss": 0.5}, env_step=1, train_iter=1)
    sink.add_scalar("mine/x", 0.5, 7)
    sink.close()
    assert event_files(tmp_path) == []


def test_killed_process_loses_no_line_that_was_written(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from ding_like.utils.metrics import MetricsSink\n"
        "sink = MetricsSink(sys.argv[1], tensorboard=False)\n"
        "for i in range(3):\n"
        "    sink.write('learner', {'loss': i}, env_step=i, train_iter=i)\n"
        "os.kill(os.getpid(), 9)\n"
    )

    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)

    assert [line["loss"] for line in read_lines(tmp_path)] == [0, 1, 2]


def test_write_after_close_opens_the_files_again(sink: MetricsSink, tmp_path: Path) -> None:
    for step in (1, 2):
        sink.write("learner", {"loss": 0.5}, env_step=step, train_iter=step)
        sink.close()
        sink.close()

    assert [line["env_step"] for line in read_lines(tmp_path)] == [1, 2]
    assert [read_scalars(path)[0][2] for path in event_files(tmp_path)] == [1, 2]


def test_load_cuts_back_to_where_the_state_was_taken(sink: MetricsSink, tmp_path: Path) -> None:
    sink.write("learner", {"loss": 0.5}, env_step=1, train_iter=1)
    state = sink.state_dict()
    sink.write("learner", {"loss": 0.4}, env_step=2, train_iter=2)
    sink.close()

    resumed = MetricsSink(tmp_path)
    resumed.load_state_dict(state)
    resumed.write("learner", {"loss": 0.3}, env_step=3, train_iter=3)
    resumed.close()

    assert [line["loss"] for line in read_lines(tmp_path)] == [0.5, 0.3]


def test_time_goes_on_after_load(sink: MetricsSink, tmp_path: Path) -> None:
    sink.load_state_dict({"num_bytes": 0, "time_s": 100.0})
    sink.write("learner", {"loss": 0.5}, env_step=1, train_iter=1)

    assert 100 <= read_lines(tmp_path)[0]["time_s"] < 110


def test_load_refuses_a_file_that_lost_lines(sink: MetricsSink) -> None:
    with pytest.raises(CheckpointError, match="has 0 bytes, the checkpoint was taken at 50: lines are missing"):
        sink.load_state_dict({"num_bytes": 50, "time_s": 1.0})


class RecordingWriter:
    """Stand-in for a SummaryWriter."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, value: float, global_step: int) -> None:
        self.scalars.append((tag, value, global_step))


def test_summary_writer_gets_the_same_tags() -> None:
    recorder = RecordingWriter()

    as_metrics_writer(recorder).write("learner", {"loss": 0.5}, env_step=80, train_iter=10)

    assert recorder.scalars == [("learner_iter/loss", 0.5, 10), ("learner_step/loss", 0.5, 80)]


def test_event_writer_serves_as_metrics_writer(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)

    as_metrics_writer(writer).write("buffer", {"count": 3}, env_step=-1, train_iter=1)
    writer.close()

    assert read_scalars(next(tmp_path.iterdir())) == [("buffer_iter/count", 3, 1)]


def test_writers_like_the_sink_are_used_as_they_are_and_none_writes_nothing(sink, in_tmp) -> None:
    class Mine:
        def write(self, source: str, values: Mapping[str, float], *, env_step: int, train_iter: int) -> None:
            """Write nothing."""

    mine = Mine()

    assert as_metrics_writer(sink) is sink and as_metrics_writer(mine) is mine
    as_metrics_writer(None).write("learner", {"loss": 0.5}, env_step=1, train_iter=1)
    assert list(in_tmp.iterdir()) == []
    with pytest.raises(TypeError, match="tb_logger is a str, expected a MetricsSink"):
        as_metrics_writer("log")


class SmallDisk:
    """Open file on a disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.data = b""

    def write(self, data: Any) -> int:
        taken = bytes(data)[: self.room]
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(taken)
        self.data += taken
        return len(taken)

    def close(self) -> None: ...


def written(sink: MetricsSink, disk: SmallDisk, number: int) -> None:
    sink._file = disk  # type: ignore[assignment]
    for iteration in range(number):
        sink.write("learner", {"loss": 0.5}, env_step=8, train_iter=iteration)


def test_lines_that_find_no_room_are_written_whole_when_there_is(tmp_path: Path) -> None:
    sink, disk = MetricsSink(tmp_path, tensorboard=False), SmallDisk(room=100)

    written(sink, disk, 5)
    assert len(disk.data) == 100, "the disk is full in the middle of a line"
    disk.room = 10_000
    sink.write("learner", {"loss": 0.5}, env_step=8, train_iter=5)

    assert [json.loads(line)["train_iter"] for line in disk.data.splitlines()] == list(range(6))
    sink.close()


def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    sink, disk = MetricsSink(tmp_path, tensorboard=False), SmallDisk(room=10)

    written(sink, disk, 3)
    disk.room = 10_000
    sink.close()

    assert len(disk.data.splitlines()) == 3


def test_a_disk_that_is_broken_is_no_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, disk = MetricsSink(tmp_path, tensorboard=False), SmallDisk(room=10)

    def fail(data: Any) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(disk, "write", fail)
    with pytest.raises(OSError, match="broken"):
        written(sink, disk, 1)


def test_a_checkpoint_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def full(state: Any, file: Any) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")  # what torch makes of it

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        save_state(tmp_path / "model.pt", {"x": 1})
    assert list(tmp_path.iterdir()) == []


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
def test_terminal_without_colour_gets_plain_lines(monkeypatch, capsys, name: str, value: str) -> None:
    fake_terminal(monkeypatch)
    monkeypatch.setenv(name, value)

    setup_console()
    logging.getLogger("ding_like").info("return 12.5")

    assert "\x1b" not in capsys.readouterr().out


def test_control_characters_are_shown_escaped_in_console_and_files(tmp_path, capsys) -> None:
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


def test_logger_appends_to_its_file_and_reaches_the_console_only_when_asked(tmp_path, capsys) -> None:
    setup_console()
    logger, writer = build_logger(tmp_path / "log", "collector")
    shown, _ = build_logger(tmp_path, "evaluator", to_console=True)

    logger.info("8 samples")
    shown.info("mean return 475")
    close_logger(logger)
    close_logger(shown)

    assert writer is None
    assert (tmp_path / "log" / "collector_logger.txt").read_text().endswith("[INFO] 8 samples\n")
    assert "mean return 475" in (out := capsys.readouterr().out) and "8 samples" not in out


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


def test_a_program_without_logging_sees_what_the_command_shows(monkeypatch, capsys) -> None:
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
def test_a_program_that_has_its_own_logging_or_wants_none_is_left_alone(name: str, monkeypatch, capsys) -> None:
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


def test_a_handler_that_is_added_while_records_go_to_a_file_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    logger, added = logging.getLogger("ding_like"), logging.NullHandler()
    monkeypatch.setattr(logger, "handlers", logger.handlers[:])
    before = logger.handlers[:]
    with log_to_file(tmp_path / "log.txt"):
        logger.addHandler(added)

    assert logger.handlers == [*before, added]


def test_another_run_says_a_warning_again(capsys: pytest.CaptureFixture[str]) -> None:
    setup_console()
    for _ in range(2):
        log.REPEATS.begin()
        logging.getLogger("ding_like.envs").warning("env 1 fell over")

    assert capsys.readouterr().out.count("env 1 fell over") == 2
