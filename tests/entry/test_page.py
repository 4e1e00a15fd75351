"""`--page` of the command, and `live_page` of programs."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import requests

from ding_like.entry import live_page, serial_pipeline
from ding_like.entry.cli import main
from ding_like.entry.page import with_page_value
from ding_like.report.live import LiveRun
from tests.support import wait_until

CONFIG = "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"


@pytest.mark.parametrize(
    "words, found",
    [
        (["-m", "serial", "--page"], ["-m", "serial", "--page", "0"]),
        (["--page", "-m", "serial"], ["--page", "0", "-m", "serial"]),
        (["--page", "policy.learn.batch_size=8"], ["--page", "0", "policy.learn.batch_size=8"]),
        (["--page", "system.ray.address=10.0.0.1:6379"], ["--page", "0", "system.ray.address=10.0.0.1:6379"]),
        (["--page", "8080", "a=1"], ["--page", "8080", "a=1"]),
        (["--page", "0.0.0.0:8080"], ["--page", "0.0.0.0:8080"]),
        (["--page", "[::1]:8080"], ["--page", "[::1]:8080"]),
        (["--page=8080"], ["--page=8080"]),
    ],
)
def test_the_port_may_be_left_out_before_any_other_word(words: list[str], found: list[str]) -> None:
    assert with_page_value(words) == found


@pytest.mark.parametrize(
    "words, message",
    [
        (["-m", "eval", "-e", "cartpole", "-p", "dqn"], "--page is of runs that train, not of mode eval: leave it out"),
        (["-m", "serial", "-e", "cartpole", "-p", "dqn", "-s", "0..2"], "3 seeds are given: give one -s"),
        (["-m", "serial", "-e", "cartpole", "-p", "dqn", "--dry-run"], "leave one of them out"),
        (["-m", "seed", "-M", "actor", "--address", "a:1", "-c", "x.py"], "not of -M actor: give it to that one"),
        (["-m", "dist", "-M", "learner", "--coordinator", "http://a:1", "-c", "x.py"], "not of -M learner"),
    ],
)
def test_what_has_no_page_is_refused_with_the_fix(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--page"])
    assert stop.value.code == 1 and message in capsys.readouterr().err


@pytest.mark.parametrize("address", ["99999", "host:99999"])
def test_a_port_out_of_range_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["-m", "serial", f"--page={address}"])
    assert stop.value.code == 2 and "neither a port from 0 to 65535 nor HOST:PORT" in capsys.readouterr().err


def test_a_rank_that_is_not_the_first_serves_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("ding_like.entry.cli.run", lambda options: None)
    main(["-m", "serial", "-e", "cartpole", "-p", "dqn", "--page"])
    assert "page:" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_program_watches_saves_and_stops_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    seen: dict[str, Any] = {}
    with live_page() as page:
        base, token = page.url.split("/?token=")
        headers = {"Authorization": f"Bearer {token}"}

        def state() -> dict[str, Any]:
            found: dict[str, Any] = requests.get(f"{base}/api/state", headers=headers, timeout=10).json()
            return found

        def watch() -> None:
            wait_until(lambda: state()["env_step"] > 600 and state()["evals"]["rows"])
            seen["early"] = state()
            key = {"X-Run-Key": (folder / "page.key").read_text().strip()}
            seen["save"] = requests.post(f"{base}/save", headers={**headers, **key}, timeout=10).status_code
            wait_until(lambda: state()["saved_at"])
            seen["stop"] = requests.post(f"{base}/stop", headers={**headers, **key}, timeout=10).status_code
            wait_until(lambda: state()["status"] == "interrupted")
            seen["end"] = state()

        reader = threading.Thread(target=watch)
        reader.start()
        with pytest.raises(KeyboardInterrupt):
            serial_pipeline(CONFIG, overrides=["env.stop_value=600"], exp_name=str(folder))
        reader.join(60.0)

    early, end = seen["early"], seen["end"]
    assert f"page: {page.url}" in capsys.readouterr().out
    assert (early["status"], early["pid"]) == ("running", os.getpid())
    assert early["buffer"]["capacity"] == 100_000 and 0 < early["buffer"]["rows"] <= early["env_step"] + 600
    assert early["resume_command"] == f"ding --resume {folder}"
    assert (seen["save"], seen["stop"]) == (202, 202)
    assert re.match(r"interrupted at env step [\d,]+, iteration [\d,]+: saved, go on with", end["why"])
    assert len(list((folder / "ckpt/resume").iterdir())) == 2
    assert not (folder / "page.key").exists()


@pytest.mark.slow
def test_a_run_that_solves_its_env_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []
    monkeypatch.setattr(LiveRun, "give_last_state", lambda run, _: ends.append(run.state().why))
    with live_page():
        serial_pipeline(CONFIG, overrides=["env.stop_value=1"], exp_name=str(tmp_path / "run"))
    assert ends == ["solved: an evaluation reached 1"]
