"""Trackers follow a run from threads of their own, and cannot harm it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import compile_config
from ding_like.errors import ConfigError
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.trackers import Follower, Tracked, lines_behind, numbers_of, values_of
from tests.support import wait_until
from tests.utils.tracker_doubles import HangingTracker

DOUBLES = "tests.utils.tracker_doubles"


pytestmark = pytest.mark.usefixtures("in_tmp")


def cfg(double: str) -> dict[str, Any]:
    settings = dict(every_s=0.05, finish_s=1.0 if double == "HangingTracker" else 20.0)
    trackers = {"mine": {"type": f"{DOUBLES}:{double}", **settings}}
    return {"exp_name": "exp", "policy": {"type": "dqn"}, "trackers": trackers}


def found() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("exp/tracked.jsonl").read_text().splitlines()]


def sent() -> list[tuple[int, float]]:
    return [(each["report"]["env_step"], each["report"]["x"]) for each in found() if "report" in each]


def write(sink: MetricsSink, steps: range, *, x: float = 0.0) -> None:
    for step in steps:
        sink.write("learner", {"x": x + step}, env_step=step, train_iter=step)


# --- following a file


def follower(name: str = "state.json") -> Follower:
    return Follower(Path("exp/metrics.jsonl"), Path(name))


def steps_of(reports: list[Any]) -> list[int]:
    return [report["env_step"] for report in reports]


def test_lines_come_once_and_only_whole() -> None:
    sink, follows = MetricsSink("exp", tensorboard=False), follower()
    write(sink, range(3))

    assert steps_of(follows.read()) == [0, 1, 2]
    assert steps_of(follows.read()) == [0, 1, 2]  # they were not kept yet
    follows.keep()
    with open("exp/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"source": "learner", "env_step"')
    assert follows.read() == []
    assert steps_of(follower().read()) == []  # another process goes on there
    sink.close()


def test_lines_that_a_resumed_run_writes_again_are_not_sent_again() -> None:
    sink, follows = MetricsSink("exp", tensorboard=False), follower()
    write(sink, range(4))
    state = sink.state_dict()
    write(sink, range(4, 8))
    follows.read()
    follows.keep()
    write(sink, range(8, 10))  # not sent when the run was killed

    again = follower()
    again.cut(state["num_bytes"], list(lines_behind(sink.path, state["num_bytes"])))
    sink.load_state_dict(state)
    write(sink, range(4, 12))

    assert steps_of(again.read()) == [8, 9, 10, 11]
    again.keep()
    assert again.read() == []
    sink.close()


def test_a_line_for_the_second_time_at_one_step_is_news() -> None:
    sink, follows = MetricsSink("exp", tensorboard=False), follower()
    state = sink.state_dict()
    write(sink, range(1))
    follows.read()
    follows.keep()
    follows.cut(0, list(lines_behind(sink.path, 0)))
    sink.load_state_dict(state)
    write(sink, range(1))
    write(sink, range(1), x=7.0)

    assert [report["x"] for report in follows.read()] == [7.0]
    sink.close()


def test_numbers_bear_their_source() -> None:
    report = {"source": "learner", "env_step": 3, "train_iter": 1, "time_s": 0.1, "loss": "nan", "q": 2}

    values = values_of(report)

    assert set(values) == {"learner/loss", "learner/q"} and values["learner/q"] == 2.0
    assert numbers_of({"eval_value": 3, "host": "h", "raw": [1], "eval_metrics": {"is_success": 0.5}}) == {
        "result/eval_value": 3.0,
        "result/eval_metrics/is_success": 0.5,
    }


# --- threads of their own


def test_a_tracker_receives_a_run_from_begin_to_end() -> None:
    sink = MetricsSink("exp", tensorboard=False)
    with Tracked(cfg("FileTracker")) as trackers:
        trackers.follow(sink)
        write(sink, range(5))
        Path("exp/result.json").write_text('{"eval_value": 4.5}')
        Path("exp/curve.png").write_bytes(b"")
    sink.close()

    first, *_, last = found()
    assert first == {"begin": None, "name": "exp", "policy": "dqn", "other": {}}
    assert sent() == [(step, float(step)) for step in range(5)]
    assert last == {"finish": "finished", "result": 4.5, "files": ["curve.png", "result.json"]}


def test_keys_that_are_no_text_reach_a_tracker_as_text() -> None:
    keyed: dict[Any, Any] = {**cfg("FileTracker"), (1, 2): 3, None: (4,)}
    with Tracked(keyed) as trackers:
        trackers.follow()

    assert found()[0]["other"] == {"(1, 2)": 3, "None": [4]}


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt, "interrupted"), pytest.param(ValueError, "failed", marks=pytest.mark.slow)],
)
def test_a_run_that_does_not_finish_is_ended_too_and_goes_on_under_its_id(error: type, status: str) -> None:
    sink = MetricsSink("exp", tensorboard=False)
    with pytest.raises(error), Tracked(cfg("FileTracker")) as trackers:
        trackers.follow(sink)
        write(sink, range(3))
        raise error
    assert found()[-1]["finish"] == status and found()[-1]["result"] is None
    state = {"num_bytes": 0, "time_s": 0.0}
    with Tracked(cfg("FileTracker")) as trackers:
        trackers.follow(sink)
        sink.load_state_dict(state)
        write(sink, range(5))
    sink.close()

    assert [each["begin"] for each in found() if "begin" in each] == [None, "first"]
    assert sent() == [(step, float(step)) for step in range(5)]


def test_a_refusal_is_logged_once_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    sink = MetricsSink("exp", tensorboard=False)
    with caplog.at_level(logging.INFO, "ding_like"), Tracked(cfg("RefusedTracker")) as trackers:
        trackers.follow(sink)
        write(sink, range(50))
    sink.close()

    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "mine cannot begin (TrackerRefusedError: no API key): it is off" in warnings[0]
    assert len(Path("exp/metrics.jsonl").read_text().splitlines()) == 50


def test_what_fails_once_is_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    sink = MetricsSink("exp", tensorboard=False)
    with caplog.at_level(logging.WARNING, "ding_like"), Tracked(cfg("FlakyTracker")) as trackers:
        trackers.follow(sink)
        write(sink, range(5))
        wait_until(lambda: any("cannot send" in text for text in caplog.messages), "a failed try")
        wait_until(lambda: Path("exp/tracked.jsonl").is_file() and sent(), "the next try")
    sink.close()

    assert sent() == [(step, float(step)) for step in range(5)]
    assert len(caplog.messages) == 1 and "it is tried again" in caplog.messages[0]


def test_a_tracker_that_hangs_is_left_behind_in_bounds(caplog: pytest.LogCaptureFixture) -> None:
    sink = MetricsSink("exp", tensorboard=False)
    with caplog.at_level(logging.WARNING, "ding_like"):
        with Tracked(cfg("HangingTracker")) as trackers:
            trackers.follow(sink)
            write(sink, range(5))
    HangingTracker.let_go.set()
    sink.close()

    assert any("mine has not finished within 1 s and is left behind" in text for text in caplog.messages)


def test_only_the_first_learner_has_trackers() -> None:
    with Tracked(cfg("FileTracker"), is_first=False) as trackers:
        trackers.follow(None)

    assert not Path("exp/tracked.jsonl").exists()


# --- config


def compiled(trackers: Any, *overrides: str) -> Any:
    main = {"env": {"env_id": "CartPole-v1"}, "trackers": trackers}
    create = {"env": {"type": "gymnasium"}, "policy": {"type": "dqn"}}
    return compile_config(main, create, save=False, overrides=overrides)


def test_a_tracker_has_its_defaults_and_takes_overrides() -> None:
    cfg = compiled({"wandb": {"tags": ["a"]}}, "trackers.wandb.project=x", "trackers.mlflow.uri=runs")

    assert cfg.trackers.wandb.project == "x" and cfg.trackers.wandb.mode == "online"
    assert list(cfg.trackers.wandb.tags) == ["a"]
    assert cfg.trackers.mlflow.uri == "runs" and cfg.trackers.mlflow.experiment == "ding_like"


def test_a_tracker_can_be_left_out_on_the_command_line() -> None:
    assert compiled({"wandb": {"project": "x"}}, "trackers.wandb=None").trackers == {"wandb": None}


@pytest.mark.parametrize(
    ("trackers", "said"),
    [
        ({"wanb": {}}, "trackers.wanb.*wandb"),
        ({"wandb": {"projct": "x"}}, "trackers.wandb.projct.*did you mean 'project'"),
        ({"wandb": {"mode": "off"}}, "trackers.wandb.mode.*'online' or 'offline'"),
        ({"wandb": {"project": 3}}, "trackers.wandb.project.*expected str"),
        ({"wandb": True}, "trackers.wandb.*True"),
        (["wandb"], "trackers.*section"),
    ],
)
def test_what_is_wrong_with_trackers_is_one_clear_error(trackers: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compiled(trackers)


def test_a_missing_package_is_named_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r'pip install "ding-like\[wandb\]"'), Tracked(cfg("AbsentTracker")):
        pass
    assert not Path("exp").exists()
