"""`ding profile` watches a run, stops it and says where its time went; what it cannot run is one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ding_like.entry import profile_run
from ding_like.entry.profile_run import profile_command, watch
from ding_like.errors import ConfigError

pytestmark = pytest.mark.usefixtures("in_tmp")
RUN = ("-e", "cartpole", "-p", "dqn", "env.stop_value=1e9")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("mode", "labels"), [("serial", {"main"}), ("parallel", {"learner", "collector0", "collector1"})]
)
def test_a_run_is_watched_and_stopped(mode: str, labels: set[str]) -> None:
    done = CliRunner().invoke(profile_command, ["--seconds", "12", "-m", mode, *RUN], catch_exceptions=False)

    assert done.exit_code == 0, done.output
    found = json.loads(Path("profile/profile.json").read_text())
    shares = {each["label"]: each["shares"] for each in found["threads"]}
    assert labels <= {*shares} and all(sum(each.values()) == pytest.approx(1.0) for each in shares.values())
    learns = shares["main" if mode == "serial" else "learner"]
    assert learns["learning"] > 0.3 and found["wall_s"] < 60
    assert sum(each["cpu_s"] for each in found["processes"].values()) > 5
    assert "learns" in found["verdict"] or "learning takes most" in found["verdict"]
    assert Path("profile/profile.png").stat().st_size > 10_000 and Path("profile/total_config.py").is_file()


def test_a_run_without_a_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="say how to run: ding profile -m serial"):
        CliRunner().invoke(profile_command, [*RUN], catch_exceptions=False)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_run.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match=r"needs py-spy: pip install \"ding_like\[profile\]\""):
        watch(["-c", "pass"], seconds=1.0)


def test_an_option_may_have_its_value_behind_an_equals_sign() -> None:
    assert profile_run._split("--exp-name=mine") == ["--exp-name", "mine"]
    assert profile_run._split("env.stop_value=9") == ["env.stop_value=9"] and profile_run._split("-m") == ["-m"]


def test_folders_do_not_meet() -> None:
    Path("profile").mkdir()
    assert profile_run._with_folder(["-m", "serial"])[1] == Path("profile_2")
    assert profile_run._with_folder(["--exp-name", "mine"]) == (("--exp-name", "mine"), Path("mine"))
