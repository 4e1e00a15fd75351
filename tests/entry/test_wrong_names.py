"""Wrong names on the command line are answered with the fault and what to give instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.entry.cli import main

pytestmark = pytest.mark.usefixtures("in_tmp")
CONFIG = str(Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-m serial -e carpole -p dqn", "did you mean -e cartpole -p dqn"),
        ("-m serial -e cartpole -p nothing", "there are: cartpole_a2c"),
        ("-m serial -c nofile.py", "a shipped one: -e cartpole -p dqn"),
        ("--resume nodir", "There are: myexp. Give the exp_name of a run"),
        ("enjoy nodir", "There are: myexp. Give the exp_name of a run"),
        ("enjoy noconfig", "it has no total_config.py. There are: myexp. Give"),
        ("plot empty", "its run wrote nothing. There are: myexp, noconfig. Give the exp_name of a run"),
        ("report empty", "its run wrote nothing. There are: myexp, noconfig. Give the exp_name of a run"),
        (f"-m serial -c {CONFIG} -s 1 seed=3", "seed would have no effect, as the run's seed is given as 1"),
        ("serve myexp --reload-s nan", "reload_s is nan, expected seconds"),
    ],
)
def test_the_answer_names_the_fix(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("myexp", "noconfig", "empty"):
        Path(folder).mkdir()
    for file in ("myexp/metrics.jsonl", "myexp/total_config.py", "noconfig/metrics.jsonl"):
        Path(file).touch()

    with pytest.raises(SystemExit) as stop:
        main(line.split())

    assert stop.value.code == 1 and words in " ".join(capsys.readouterr().err.split())
