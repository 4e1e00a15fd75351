"""Commanders: settings of a serial run; tasks and the end of a parallel run; opponents and snapshots of a league."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ding_like.data.rows import CommandMode
from ding_like.errors import ConfigError, SchemaError
from ding_like.league import create_league
from ding_like.worker import BaseSerialCommander
from ding_like.worker.commander import NaiveCommander, OneVsOneCommander, create_parallel_commander


class Run:
    """Run with three collectors."""

    env_step = 0

    def __init__(self) -> None:
        self.version: int | None = None
        self.open = {"learn": 1, "eval": 1, "collect": 0}

    def num_workers(self, role: str) -> int:
        return 3

    def num_open(self, kind: str) -> int:
        return self.open[kind]

    def policy_of(self, policy_id: str) -> dict[str, Any] | None:
        return None if self.version is None else weights(self.version)

    def ask_back(self, kind: str) -> bool:
        return False


def weights(version: int) -> dict[str, Any]:
    return {"attempt": 1, "version": version, "sha256": "0", "nbytes": 1}


def make(**cfg: Any) -> OneVsOneCommander:
    league = create_league(
        {"games_per_job": 8, "naive_sp_player": {"branch_probs": {"pfsp": 1.0}, "one_phase_step": 100}},
        rng=np.random.default_rng(0),
        save_checkpoint=lambda source, target: None,
    )
    found = create_parallel_commander({"type": "one_vs_one", **cfg}, league=league)
    assert isinstance(found, OneVsOneCommander)
    return found


def finish(commander: OneVsOneCommander, cfg: dict[str, Any], games: Any, version: int) -> bool:
    return commander.finished("collect", {"game_result": games}, task_cfg=cfg, newest=weights(version))


def test_tasks_begin_with_the_first_weights_and_name_their_opponents() -> None:
    commander, run = make(), Run()
    assert commander.new_tasks(run) == []
    run.version = 0

    tasks = commander.new_tasks(run)

    assert [task.kind for task in tasks] == ["collect"] * 3
    assert all(task.cfg["opponent"] == weights(0) and task.cfg["games"] == 8 for task in tasks)
    assert tasks[0].cfg["player_id"] == ["naive_sp_player_0", "naive_sp_player_0_0_historical"]
    assert tasks[0].cfg["policy_update_flag"] == [True, False]
    assert json.loads(json.dumps(tasks[0].cfg)) == tasks[0].cfg, "the wire takes nothing but plain data"


def test_snapshots_are_published_weights_that_are_kept() -> None:
    commander, run = make(), Run()
    run.version = 0
    (task, *_) = commander.new_tasks(run)
    assert not finish(commander, task.cfg, [1] * 8, 50)
    assert weights(50) not in commander.kept_policies
    assert not finish(commander, task.cfg, [1] * 8, 100)

    assert [each for each in commander.kept_policies if each] == [weights(0), weights(100)]
    saved = json.loads(json.dumps(commander.state_dict()))
    other = make()
    other.load_state_dict(saved)
    assert other.kept_policies == commander.kept_policies and other.table() == commander.table()
    run.version = 120
    assert {task.cfg["opponent"]["version"] for task in other.new_tasks(run)} <= {0, 100}


def test_the_run_ends_when_the_hardest_snapshot_is_beaten() -> None:
    commander, run = make(stop_snapshots=1), Run()
    run.version = 0
    (task, *_) = commander.new_tasks(run)
    finish(commander, task.cfg, [1, -1] * 8, 1)
    assert not commander.stop
    finish(commander, task.cfg, [1] * 60, 2)
    assert commander.stop and commander.new_tasks(run) == []


def test_results_that_are_none_are_refused() -> None:
    commander, run = make(), Run()
    run.version = 0
    (task, *_) = commander.new_tasks(run)
    bad: list[Any] = [None, "wins", [2], [0.5], [None], [1] * 10_001]
    for games in bad:
        with pytest.raises(SchemaError, match="games of a task"):
            finish(commander, task.cfg, games, 1)


def test_without_a_league_there_is_no_such_commander() -> None:
    with pytest.raises(ConfigError, match="league"):
        create_parallel_commander({"type": "one_vs_one"})


# --- one policy


@pytest.mark.parametrize(("version", "stops"), [(0, False), (1, True)])
def test_an_evaluation_stops_the_run_only_after_training_began(version: int, stops: bool) -> None:
    commander = NaiveCommander({"stop_value": 10.0})

    commander.finished("eval", {"returns": [10.0, 12.0], "version": version})

    assert commander.stop is stops
    assert commander.best_return == 11.0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("learner_task_space", 2, "learner_task_space is 2, but a parallel run has one learn task.*--learners N"),
        ("learner_task_space", 0, "learner_task_space is 0, but"),
        ("collector_task_space", -1, "collector_task_space is -1; give a whole number, 0 or more"),
        ("collector_task_space", "two", "collector_task_space is 'two'; give a whole number"),
    ],
)
def test_a_task_space_that_cannot_be_is_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_parallel_commander({key: value})


# --- serial


def serial_commander(**kwargs: Any) -> BaseSerialCommander:
    learner = SimpleNamespace(learn_info={"learner_step": 3, "learner_done": False})
    collector = SimpleNamespace(envstep=24)
    return BaseSerialCommander({}, learner, collector, None, None, **kwargs)


def command_mode(seen: list[dict[str, Any]]) -> CommandMode:
    def get_setting_collect(info: dict[str, Any]) -> dict[str, Any]:
        seen.append(info)
        return {"eps": 0.1}

    return CommandMode(None, get_setting_collect, None)


def test_step_gives_the_policy_what_learner_and_collector_know() -> None:
    seen: list[dict[str, Any]] = []

    setting = serial_commander(policy=command_mode(seen)).step()

    assert setting == {"eps": 0.1}
    assert seen == [{"learner_step": 3, "learner_done": False, "envstep": 24}]


def test_policy_may_be_set_later() -> None:
    commander = serial_commander()

    commander.policy = command_mode([])

    assert commander.step() == {"eps": 0.1}


def test_step_without_a_policy_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"commander\.policy = "):
        serial_commander().step()


def test_default_config_is_empty_but_for_its_name() -> None:
    assert BaseSerialCommander.default_config() == {"cfg_type": "BaseSerialCommanderDict"}
