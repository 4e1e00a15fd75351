"""An env that produces NaN costs its episode, and the run only if it never stops doing so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import serial_pipeline
from ding_like.entry.cli import main as ding
from ding_like.errors import EnvError
from tests.pipeline.nan_env import make_nan_env
from tests.pipeline.test_serial import make_configs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

MANAGERS = ["base", pytest.param("subprocess", marks=pytest.mark.slow)]


def train(manager: str, broken: dict[str, Any]) -> None:
    """Train with four lanes of which lane 2 is `broken`; evaluations are without fault."""
    main, create = make_configs()
    create["env_manager"] = dict(type=manager)
    clean = dict(what="reward", episodes=())
    collector: list[dict[str, Any]] = [clean, clean, broken, clean]
    serial_pipeline((main, create), seed=0, max_env_step=400, env_setting=(make_nan_env, collector, [clean] * 2))


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("what", ["reward", "observation"])
def test_an_episode_with_a_nan_is_dropped_counted_and_logged(
    what: str, manager: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        train(manager, dict(what=what, episodes=(2,)))

    said = [record.getMessage() for record in caplog.records if "broke" in record.getMessage()]
    pattern = (
        rf"env 2 broke: FloatingPointError: the {what} of env 2 holds a NaN or an infinity "
        r"\(last seeded reset \d+, \d+ steps ago; last actions \[[01, ]+\]\); recreated, its open episode is dropped"
    )
    rows = [json.loads(line) for line in (tmp_path / "exp/metrics.jsonl").read_text().splitlines()]
    dropped = [row["total_dropped_episode_count"] for row in rows if row["source"] == "collector"]
    assert said and all(re.fullmatch(pattern, each) for each in said), said
    # Episodes that broke off after the last report are logged already and not yet counted.
    assert 0 < dropped[-1] <= len(said) <= dropped[-1] + 1
    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert result["env_step"] >= 400 and result["train_iter"] > 50
    assert "NaN" not in (tmp_path / "exp/metrics.jsonl").read_text()


@pytest.mark.parametrize("manager", MANAGERS)
def test_five_nan_without_a_finished_episode_end_the_run(manager: str) -> None:
    with pytest.raises(EnvError, match=r"the reward of env 2 .*last actions.*broke 5 times without finishing"):
        train(manager, dict(what="reward", episodes=None))


CONFIG = """
from tests.pipeline.test_serial import make_configs
main_config, create_config = make_configs()
del main_config["env"]["env_id"]
main_config["env"]["kwargs"] = dict(what="reward")
create_config["env"]["type"] = "tests.pipeline.nan_env:NanEnv"
create_config["env_manager"]["type"] = "{manager}"
"""


@pytest.mark.parametrize("manager", MANAGERS)
def test_on_the_command_line_that_is_one_message_and_status_1(
    manager: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nan_config.py").write_text(CONFIG.format(manager=manager))

    with pytest.raises(SystemExit) as stop:
        ding(["-m", "serial", "-c", "nan_config.py", "-s", "3"])

    said = capsys.readouterr()
    assert stop.value.code == 1
    assert "Traceback" not in said.out + said.err
    assert said.err.count("broke 5 times without finishing an episode") == 1
    assert re.search(r"the reward of env \d holds a NaN .*last seeded reset \d+, 3 steps ago; last actions", said.err)
