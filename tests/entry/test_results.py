from __future__ import annotations

import logging
import os
import queue
import re
import shlex
import shutil
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import requests
from click.testing import CliRunner
from PIL import Image

from ding_like.entry import cli, results, serial_pipeline
from ding_like.entry.results import enjoy, enjoy_command, plot, plot_command
from ding_like.errors import CheckpointError, ConfigError
from ding_like.report.experiment import read_run
from ding_like.serve import Blueprint, CheckpointChoice, ServedPolicy
from ding_like.serve.http_server import PolicyServer
from tests.agent.films import Lamp
from tests.report.run_folder import training_and_evaluation, write_run
from tests.serve.runs import Run, ask


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        write_run(tmp_path / f"exp_seed{seed}", training_and_evaluation(), seed=seed)


@pytest.mark.parametrize(
    ("arguments", "picture"),
    [
        (["exp_seed0"], "exp_seed0/curve.png"),
        (["exp_seed0", "exp_seed1"], "compare.png"),
        (["exp_seed0", "exp_seed1", "--out", "here/both.svg"], "here/both.svg"),
    ],
)
def test_the_command_draws_into_the_folder_of_one_here_or_where_it_is_told(tmp_path, arguments, picture):
    assert CliRunner().invoke(plot_command, arguments).output == f"{picture}\n"

    assert (tmp_path / picture).is_file()
    assert picture != "here/both.svg" or "exp (2 seeds, range)" in (tmp_path / picture).read_text()


def test_experiment_given_twice_counts_once(tmp_path):
    assert plot(["exp_seed0", "exp_seed0"], "curve.svg").name == "curve.svg"

    assert "training, smoothed" in (tmp_path / "curve.svg").read_text()


def test_what_cannot_be_drawn_is_one_error(tmp_path):
    write_run(tmp_path / "young", [])
    (tmp_path / "photos").mkdir()
    for folders, said in (
        (["exp_seed0", "nope"], r"no experiment folder 'nope'\. There are: exp_seed0, exp_seed1"),
        (["exp_seed0", "photos"], "'photos' holds no metrics.jsonl: it is not an experiment folder"),
        (["young"], "nothing to draw. 'young' has no returns yet"),
        ([], "nothing to draw: give plot the folder"),
    ):
        with pytest.raises(ConfigError, match=said):
            plot(folders)


def test_a_run_with_nothing_yet_is_named_and_the_others_are_drawn(tmp_path, caplog):
    write_run(tmp_path / "young", [])
    write_run(tmp_path / "younger", [])
    (tmp_path / "younger/metrics.jsonl").unlink()

    path = plot(["young", "exp_seed0", "younger"], "both.svg")

    assert path.is_file() and "training, smoothed" in path.read_text(), "the one that is left is drawn in detail"
    assert caplog.messages == [
        "left out: 'young' has no returns yet: no episode has ended in its run.",
        "left out: 'younger' has no returns yet: its run has written nothing.",
    ]


@pytest.mark.parametrize("picture", ["both.png", "both.svg"])
def test_control_characters_in_a_name_are_drawn_escaped(tmp_path, picture):
    for name in ("a\x1b]0;b", "c\x07"):
        write_run(tmp_path / name, training_and_evaluation(), env_id="CartPole\x1b[31m")

    path = plot(["a\x1b]0;b", "c\x07"], picture)  # matplotlib would warn of them, which is an error here

    if picture == "both.svg":
        shown = "".join(ElementTree.parse(path).getroot().itertext())
        assert r"CartPole\x1b[31m" in shown and r"a\x1b]0;b" in shown


def test_a_dollar_in_a_name_is_no_formula(tmp_path):
    for name in ("a$\\foo{$", "b$"):
        write_run(tmp_path / name, training_and_evaluation())

    assert plot(["a$\\foo{$", "b$"]).is_file()


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Return the folder of a run of a few updates."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("runs")
        monkeypatch.chdir(folder)
        main = dict(
            exp_name="exp",
            env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2),
            policy=dict(
                model=dict(encoder_hidden_size_list=[16, 16]),
                random_collect_size=16,
                learn=dict(batch_size=16),
                collect=dict(n_sample=8),
            ),
        )
        create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
        serial_pipeline((main, create), seed=0, max_train_iter=2)
        return folder / "exp"


def num_frames(path) -> int:
    with Image.open(path) as image:
        return image.n_frames


def test_best_checkpoint_is_played_and_filmed(experiment):
    (experiment / "agent.gif").unlink(missing_ok=True)

    path, returns = enjoy(experiment)

    assert path == experiment / "agent.gif"
    assert len(returns) == 1 and num_frames(path) > 1


def test_command_plays_several_episodes_and_prints_returns_and_path(experiment, tmp_path):
    out = tmp_path / "new" / "a.gif"

    result = CliRunner().invoke(enjoy_command, [str(experiment), "--ckpt", "last", "-n", "3", "--out", str(out)])

    first, second = result.output.splitlines()
    words = first.split()
    assert words[0] == "returns" and words[4] == "mean" and second == str(out)
    assert float(words[5]) == pytest.approx(sum(map(float, words[1:4])) / 3, rel=1e-3)
    assert out.is_file()


def test_command_says_which_episode_it_shows(experiment, tmp_path):
    result = CliRunner().invoke(enjoy_command, [str(experiment), "--out", str(tmp_path / "a.gif")])

    words = result.output.split()
    assert words[0] == "returns" and result.output.splitlines()[0].split(maxsplit=2)[2].startswith("the median of 10")
    assert float(words[8]) <= float(words[1]) <= float(words[10])


def test_equal_seeds_play_equally_and_another_checkpoint_gets_a_film_of_its_own(experiment, tmp_path):
    first, second = (enjoy(experiment, seed=5, num_episodes=2, out=tmp_path / "a.gif").returns for _ in range(2))

    assert first == second
    assert enjoy(experiment, "last").path == experiment / "agent_iteration_3.gif"


def test_env_of_ones_own_is_given_again(experiment, tmp_path):
    class FourLamps(Lamp):
        observation_space = Lamp.observation_space.__class__(-1, 1, (4,))

        def step(self, action):
            return (self.observation_space.sample(), *super().step(action)[1:])

        def reset(self, **kwargs):
            super().reset(**kwargs)
            return self.observation_space.sample(), {}

    setting = (lambda cfg: FourLamps(cfg.render_mode), [{}], [{}])

    assert enjoy(experiment, env_setting=setting, out=tmp_path / "a.gif").returns == [5.0]


def test_what_is_missing_is_one_clear_error(experiment):
    with pytest.raises(ConfigError, match="'nope' is not an experiment folder"):
        enjoy("nope")
    with pytest.raises(CheckpointError, match="no checkpoint 'nope.pth.tar'; which is 'best', 'last'"):
        enjoy(experiment, "nope.pth.tar")
    with pytest.raises(ConfigError, match="num_episodes is 0"):
        enjoy(experiment, num_episodes=0)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("open('ran', 'w')\n", "not as a run saves it .*is code"),
        ("main_config['env'] = dict(type='my_absent_env:Env')\n", "not as a run saves it .*is code"),
        ("main_config = 3\n", "not as a run saves it .*are dicts"),
    ],
)
def test_what_a_folder_holds_is_not_run(experiment, tmp_path, monkeypatch, code, error):
    folder = tmp_path / "exp"
    shutil.copytree(experiment, folder)
    config = folder / "total_config.py"
    config.write_text(config.read_text() + code)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=error):
        enjoy(folder)
    with pytest.raises(ConfigError, match=error):
        read_run(folder)

    assert not (tmp_path / "ran").exists()


def test_own_envs_of_a_folder_must_be_allowed(experiment, tmp_path, monkeypatch):
    folder = tmp_path / "exp"
    shutil.copytree(experiment, folder)
    config = folder / "total_config.py"
    config.write_text(config.read_text().replace('"CartPole-v1"', '"my_enjoyed_envs:CartPole-v1"'))
    (tmp_path / "my_enjoyed_envs.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ConfigError, match="not imported here: my_enjoyed_envs(.|\n)*--import my_enjoyed_envs"):
        enjoy(folder)

    assert not (tmp_path / "ran").exists()
    enjoy(folder, num_episodes=1, import_names=["my_enjoyed_envs"])
    assert (tmp_path / "ran").exists()


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
def test_a_signal_ends_it_with_the_status_that_other_commands_have(number, status, said, exp, opened, capsys, caplog):
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
def test_what_cannot_be_served_is_one_line_and_status_1(arguments, message, exp, tmp_path, capsys) -> None:
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
