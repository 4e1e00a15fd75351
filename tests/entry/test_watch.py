"""`ding report --watch` follows a run until it ends, and `ding tb` runs TensorBoard for as long as the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import requests

from ding_like.entry import results
from ding_like.entry.results import show_board, watch_report
from ding_like.errors import ConfigError
from ding_like.report.experiment import Experiment
from ding_like.utils.metrics import MetricsSink
from tests.entry.typed import status_of
from tests.report.run_folder import RESULT, report, training_and_evaluation, write_run, write_seeds

pytestmark = [pytest.mark.usefixtures("in_tmp"), pytest.mark.timeout(60)]

ROOT = Path(__file__).parents[2]
REFRESH = '<meta http-equiv="refresh"'


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_REST", 0.0)


def add(folder: Path, env_step: int) -> None:
    line = report("evaluator", env_step, 77.0)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_the_page_follows_the_run_and_ends_with_it() -> None:
    folder, pages = write_run(Path("exp"), training_and_evaluation(until=1000)), list[str]()

    def wrote(path: Path) -> None:
        pages.append(path.read_text())
        if len(pages) == 1:
            add(folder, 1500)
        elif len(pages) == 2:
            (folder / "result.json").write_text(json.dumps(RESULT))
        elif len(pages) == 3:
            (folder / "agent.gif").write_bytes(b"GIF89a")  # a run writes it after its result

    watch_report(folder, every_s=0.02, wrote=wrote)

    assert len(pages) == 4
    assert [REFRESH in page for page in pages] == [True, True, False, False]
    assert ["data:image/gif" in page for page in pages] == [False, False, False, True]
    assert '<td class="n">1,500</td>' not in pages[0] and "1,500" in pages[1] and "480" in pages[2]


def test_nothing_is_written_while_nothing_changes() -> None:
    folder, count = write_run(Path("exp"), training_and_evaluation(until=1000)), 0
    looks = 0

    def wrote(path: Path) -> None:
        nonlocal count
        count += 1

    def look(experiment: Path, found: object = results._written) -> object:
        nonlocal looks
        looks += 1
        if looks == 20:
            (folder / "result.json").write_text(json.dumps(RESULT))
        return found(experiment)  # type: ignore[operator]  # it is the function itself

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "_written", look)
        watch_report(folder, every_s=0.001, wrote=wrote)

    assert count == 2 and looks == 21


def test_a_run_without_returns_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    folder = write_run(Path("exp"), [])
    begins = threading.Timer(0.1, lambda: add(folder, 100))
    ends = threading.Timer(0.4, lambda: (folder / "result.json").write_text(json.dumps(RESULT)))
    begins.start()
    ends.start()

    with caplog.at_level("INFO"):
        watch_report(folder, every_s=0.05)

    begins.join()
    ends.join()
    assert "'exp' has no returns yet" in caplog.text and "Ctrl-C ends that" in caplog.text
    assert "77" in (folder / "report.html").read_text()


def test_several_seeds_are_watched_until_the_last_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, reloads = write_seeds(Path("several"), {0: 480.0, 1: None}), list[float | None]()

    def write_page(found: Experiment, path: Path, *, reload_s: float | None) -> Path:
        reloads.append(reload_s)
        if len(reloads) == 1:
            (folder / "seed1/result.json").write_text(json.dumps(RESULT))
        return path

    monkeypatch.setattr("ding_like.report.html.write_page", write_page)
    watch_report(folder, every_s=0.02)

    assert reloads == [0.02, None]


def test_ctrl_c_leaves_a_whole_page(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("exp"), training_and_evaluation(until=1000))
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()

    status = status_of("report", "exp", "--watch", "--every-s", "30")

    timer.join()
    shown = capsys.readouterr()
    assert status == 130 and shown.err.strip() == "interrupted"
    assert shown.out.startswith("exp/report.html  (written again as the run goes on; end it with Ctrl-C)")
    assert (folder / "report.html").read_text().endswith("</html>\n")


def test_the_command_tells_that_the_run_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("exp"), training_and_evaluation(until=1000), result=RESULT)

    assert status_of("report", "exp", "--watch") == 0
    assert "the run has ended; the page was written 1 times" in capsys.readouterr().out
    assert status_of("report", "exp", "--every-s", "3") == 1
    assert "add --watch" in capsys.readouterr().err
    assert status_of("report", "nowhere", "--watch") == 1
    assert "there is no experiment folder 'nowhere'" in capsys.readouterr().err


# --- tb


def write_events(name: str) -> Path:
    folder = write_run(Path(name), training_and_evaluation(until=1000))
    sink = MetricsSink(folder)
    sink.write("evaluator", {"reward_mean": 1.0}, env_step=1, train_iter=1)
    sink.close()
    return folder


@pytest.fixture
def stand_in(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a TensorBoard that writes its arguments into a file, and ends with status 3, in front of any other."""
    main = in_tmp / "stand_in/tensorboard/main.py"
    main.parent.mkdir(parents=True)
    (main.parent / "__init__.py").touch()
    main.write_text("import json, sys\njson.dump(sys.argv[1:], open('arguments.json', 'w'))\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(main.parents[1]))
    monkeypatch.setenv("PYTHONPATH", f"{main.parents[1]}{os.pathsep}{ROOT}")
    return in_tmp / "arguments.json"


def test_tensorboard_is_given_the_folders(stand_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write_events("one"), write_events("two")

    assert show_board([one], port=0) == 3
    assert json.loads(stand_in.read_text()) == [f"--logdir={one.resolve()}", "--host=127.0.0.1", "--port=0"]
    assert status_of("tb", "one", "two", "one", "--host", "0.0.0.0", "--port", "6100") == 1
    spec = f"--logdir_spec=one:{one.resolve()},two:{two.resolve()}"
    assert json.loads(stand_in.read_text()) == [spec, "--host=0.0.0.0", "--port=6100"]
    assert "TensorBoard ended with status 3" in capsys.readouterr().err


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, stand_in: Path) -> None:
    write_run(Path("young"), [])
    with pytest.raises(ConfigError, match="'young' has no event files: its run has written nothing yet"):
        show_board(["young"])
    with pytest.raises(ConfigError, match="'nowhere' is not an experiment folder"):
        show_board(["nowhere"])
    monkeypatch.setattr(results, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'install it with: pip install "ding-like\[tb\]"'):
        show_board(["young"])


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_real_tensorboard_ends_with_the_command(how: signal.Signals) -> None:
    pytest.importorskip("tensorboard")
    write_events("exp")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ding_like", "tb", "exp", "--port", "0"]
    started = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    try:
        url = next(word for line in started.stderr for word in line.split() if word.startswith("http://127.0.0.1"))
        runs = requests.get(f"{url.rstrip('/')}/data/plugin/scalars/tags", timeout=60).json()
        started.send_signal(how)
        assert started.stderr.read() is not None  # it ends once no process has it open: TensorBoard has ended, too
        status = started.wait(timeout=60)
    finally:
        started.kill()
        started.wait(timeout=60)
        started.stderr.close()

    assert any("evaluator_step/reward_mean" in tags for tags in runs.values())
    assert status == (130 if how == signal.SIGINT else -signal.SIGKILL)
    with pytest.raises(requests.ConnectionError):
        requests.get(url, timeout=5)
