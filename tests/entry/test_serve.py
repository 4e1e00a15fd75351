"""`ding serve` as a user starts and ends it."""

from __future__ import annotations

import logging
import os
import queue
import re
import shlex
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import requests

from ding_like.entry import cli, results
from ding_like.serve import Blueprint, CheckpointChoice, ServedPolicy
from ding_like.serve.http_server import PolicyServer
from tests.serve.runs import Run, ask

ROOT = Path(__file__).parents[2]
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
SMALL = dict(model=dict(encoder_hidden_size_list=[8, 8]))


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    run = Run(tmp_path / "exp", "dqn", SMALL)
    run.save(1)
    run.save(1, name="ckpt_best.pth.tar")
    return run.folder


def url_of(lines: Sequence[str]) -> str:
    (url,) = [line.split()[1] for line in lines if line.startswith("at ")]
    return url


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[list[str]]:
    """Return where the lines come that the command prints when its port is open."""
    lines: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    opening = results.opening

    def tell(*args: Any, **kwargs: Any) -> list[str]:
        lines.put(opening(*args, **kwargs))
        return []

    monkeypatch.setattr(results, "opening", tell)
    return lines


@pytest.mark.parametrize(("number", "status", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "")])
def test_a_signal_ends_it_with_the_status_that_other_commands_have(
    number: int,
    status: int,
    said: str,
    exp: Path,
    opened: queue.SimpleQueue[list[str]],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    urls: list[str] = []

    def client() -> None:
        urls.append(url_of(opened.get(timeout=60)))
        ask(urls[0], [0.0, 0.0, 0.0])
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=client)
    thread.start()
    with caplog.at_level(logging.INFO), pytest.raises(SystemExit) as stop:
        cli.main(["serve", str(exp)])
    thread.join(60)

    err = capsys.readouterr().err
    assert stop.value.code == status and said in err and "Traceback" not in err
    assert "answered 1 requests, p50" in caplog.text
    with pytest.raises(requests.ConnectionError):
        requests.get(urls[0], timeout=5)


@pytest.mark.parametrize("token", [None, "kV3-x9_Qz7Lp2wRt8sYb"])
def test_the_lines_that_are_printed_work_as_they_are(token: str | None, exp: Path) -> None:
    blueprint, choice = Blueprint(exp), CheckpointChoice(exp, "best")
    with ServedPolicy(blueprint, choice) as served:
        server = PolicyServer(served, token=token)
        server.start()
        try:
            text = "\n".join(results.opening(server.url, served, "exp", has_token=token is not None))
            text = text.replace("TOKEN", token or "")
            (curl,) = re.findall("^curl +(.*)", text, re.MULTILINE)
            (python,) = re.findall("^python +(.*)", text, re.MULTILINE)
            words = shlex.split(curl)
            headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
            response = requests.post(words[2], data=words[-1], headers=headers, timeout=10)
            by_python = eval(python, {"requests": requests})
        finally:
            server.close()

    assert words[:2] == ["curl", "-s"] and words[-2] == "-d"
    assert response.json()["action"] == by_python and by_python in range(4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], r"ConfigError: there is no folder 'none': give the folder of a run"),
        (["{exp}", "--checkpoint", "oldest"], r"CheckpointError: there is no checkpoint 'oldest'; --checkpoint takes"),
        (["{exp}", "--host", "0.0.0.0"], r"ConfigError: the host 0.0.0.0 .* give --token-file FILE"),
        (["{exp}", "--host", ""], r"ConfigError: the host is empty"),
        (["{exp}", "--token-file", "none"], r"ConfigError: the token file none cannot be read: No such file.*Make one"),
        (["{empty}"], r"CheckpointError: there is no .*ckpt_best.pth.tar: this run has not been evaluated yet"),
        (["{empty}", "--checkpoint", "newest"], r"CheckpointError: .*this run has saved none yet"),
        (
            ["{exp}", "--port", "{used}"],
            r"CommError: .* 127.0.0.1:\d+: Address already in use. Give another --port \(0 ",
        ),
    ],
)
def test_what_cannot_be_served_is_one_line_and_status_1(
    arguments: list[str], message: str, exp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = Run(tmp_path / "empty", "dqn", SMALL).folder
    with socket.create_server(("127.0.0.1", 0)) as used:
        names = {"exp": exp, "empty": empty, "used": used.getsockname()[1]}

        with pytest.raises(SystemExit) as stop:
            cli.main(["serve", *(argument.format(**names) for argument in arguments)])

    err = capsys.readouterr().err
    assert stop.value.code == 1 and re.search(message, err) and "Traceback" not in err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["serve", "--help"])

    out = capsys.readouterr().out
    for option in ("--host", "--port", "--checkpoint", "--token-file", "--reload-s", "--max-batch", "--client-wraps"):
        assert option in out
