"""The page of a run in a browser, over real runs, while a worker is killed and another one is paused."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from ding_like.report.details import BufferUse, Details, Failure, ProcessReport
from ding_like.report.run_console import Limits, Progress, RunConsole
from ding_like.serve.run_page import RunPage
from tests.support import wait_until

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: pip install playwright")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium is installed: apt-get install chromium"),
]

HTML = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"
SEEN_S = 5.0  # within which a change of a process is to be seen
ROWS = "[...document.querySelectorAll('#rows tr')].map((row) => [...row.children].map((cell) => cell.textContent))"


class Window:
    """Window of a browser, and what its console has said."""

    def __init__(self, page: Any) -> None:  # Any: playwright's, which need not be installed
        self.page = page
        self.said: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))

    def rows(self) -> list[list[str]]:
        """Return the cells of the table of processes."""
        found: list[list[str]] = self.page.evaluate(ROWS)
        return found

    def state_of(self, pid: int) -> str:
        """Return the state that is shown of a process, "" for none."""
        return next((row[1] for row in self.rows() if row[3] == str(pid)), "")

    def wait(self, seconds: float = 0.1) -> None:
        """Let the page work."""
        self.page.wait_for_timeout(1000 * seconds)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def window(browser: Any) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1100, "height": 1000}, color_scheme="light")
    yield Window(context.new_page())
    context.close()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPage]:
    monkeypatch.setattr("ding_like.serve.run_page._LAST_WORD_S", 0.0)
    with RunPage() as opened:
        yield opened


@pytest.fixture
def shown(page: RunPage, window: Window, tmp_path: Path) -> Iterator[RunConsole]:
    """Return the console of a run whose page is open, full of HTML."""
    folder = tmp_path / "exp <b>name</b>"
    folder.mkdir(parents=True)
    with RunConsole(str(folder), Limits(max_env_step=100)) as run:
        page.run.take_line(HTML)
        run.resume_command = f"ding --resume {HTML}"
        processes = [ProcessReport(f"collector{HTML}", 5, "far-away", heartbeat_s=2.0, note=HTML)]
        run.details = lambda: Details(
            processes=processes, failures=[Failure(HTML, "12:00", HTML, 3)], lost_rows={HTML: 5},
            policy_lag=2.0, buffer=BufferUse(40, 100),
        )  # fmt: skip
        run.start(Progress(0, 0, 0.0))
        for step in range(10, 60, 10):
            run.note_evaluation([step, step + 9.0, step + 4.0], env_step=step, train_iter=step)
            run.update(Progress(step, step, float(step), mean_return=step / 2, learn={HTML: 1.0}, workers={HTML: HTML}))
        window.page.goto(page.url)
        wait_in(window, lambda: len(window.rows()) > 1)  # playwright's own wait would need eval, which the page forbids
        yield run


def test_html_stays_text_everywhere(shown: RunConsole, window: Window) -> None:
    text = window.page.inner_text("body")

    assert window.page.locator("#experiment").inner_text() == shown.title
    for part in ("#rows", "#failures", "#losses", "#learning", "#log", "#resume"):
        assert HTML in window.page.locator(part).inner_text(), part
    assert text.count(HTML) >= 8
    assert window.page.locator("img").count() == 0 and window.page.locator("script:not([src])").count() == 0
    assert window.page.title() != "ran" and window.said == []


def test_every_control_is_reached_by_the_keyboard_and_shows_the_focus(shown: RunConsole, window: Window) -> None:
    reached, outlines = [], []
    shown.save_asked = None
    for _ in range(12):
        window.page.keyboard.press("Tab")
        found = window.page.evaluate(
            "[document.activeElement.id || document.activeElement.className || document.activeElement.value, "
            "getComputedStyle(document.activeElement).outlineStyle]"
        )
        reached.append(found[0])
        outlines.append(found[1])
    first = ["skip", "processes", "0", "log", "key", "stop"]

    assert [name for name in reached if name in first][: len(first)] == first
    assert set(outlines[: len(first)]) == {"solid"}
    window.page.locator("input[name=axis]").first.focus()
    window.page.keyboard.press("ArrowRight")
    assert window.page.locator("input[name=axis]:checked").input_value() == "1"
    assert "updates" in window.page.inner_text(".u-legend")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_scrolls_down_only_and_text_is_readable(shown: RunConsole, window: Window, scheme: str) -> None:
    window.page.set_viewport_size({"width": 400, "height": 800})
    window.page.emulate_media(color_scheme=scheme)
    window.wait(0.5)

    assert window.page.evaluate("document.documentElement.scrollWidth") <= 400
    assert window.page.locator("#rows .state").first.is_visible()
    for part in ("#experiment", "#contact", "#rows .state", "dt", "#stop"):
        assert contrast(window, part) >= 4.5, part


def contrast(window: Window, selector: str) -> float:
    """Return the contrast of a text to what is behind it (WCAG 2.1)."""
    ratio: float = window.page.evaluate(
        """(selector) => {
          const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 4).map(Number);
          const light = ([red, green, blue]) => [red, green, blue].map((each) => each / 255)
            .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
            .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
          const node = document.querySelector(selector);
          let behind = node;
          while (rgb(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
          const colours = [getComputedStyle(node).color, getComputedStyle(behind).backgroundColor];
          const found = colours.map((each) => light(rgb(each)));
          return (Math.max(...found) + 0.05) / (Math.min(...found) + 0.05);
        }""",
        selector,
    )
    return ratio


def test_changes_are_announced_in_words(shown: RunConsole, window: Window) -> None:
    news = window.page.locator("#news")
    assert news.get_attribute("aria-live") == "polite"
    wait_in(window, lambda: "the run is running" in news.inner_text())

    shown.details = lambda: Details(processes=[ProcessReport(f"collector{HTML}", 5, "far-away", "lost")])

    wait_in(window, lambda: "is lost" in news.inner_text())


def test_a_page_that_is_open_for_long_holds_bounded_memory(shown: RunConsole, page: RunPage, window: Window) -> None:
    for number in range(5_000):
        page.run.take_progress(Progress(number, number, float(number), mean_return=1.0))
        page.run.take_line(f"line {number}")
    wait_in(window, lambda: "line 4999" in window.page.locator("#log").inner_text())

    sizes = window.page.evaluate("[known.rollouts.length, known.evals.length, known.lines.length]")

    assert 500 <= sizes[0] <= 1_000 and sizes[1] == 5 and sizes[2] == 200
    before = window.page.evaluate("document.querySelectorAll('*').length")
    window.wait(3.0)
    assert window.page.evaluate("document.querySelectorAll('*').length") == before


def test_stop_needs_the_key_and_then_stops(shown: RunConsole, page: RunPage, window: Window) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        window.page.fill("#key", "wrong")
        window.page.click("#stop")
        wait_in(window, lambda: "needs the run's key" in window.page.inner_text("#reply"))
        assert received == []
        window.page.fill("#key", page.run.key)
        window.page.click("#stop")
        wait_in(window, lambda: "stopping, as by Ctrl-C" in window.page.inner_text("#reply"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGINT]


def test_a_run_that_does_not_answer_is_called_silent(window: Window, tmp_path: Path) -> None:
    with RunPage() as page:
        with RunConsole(str(tmp_path), Limits()) as run:
            run.start(Progress(1, 1, 1.0))
            window.page.goto(page.url)
            wait_in(window, lambda: window.page.inner_text("#status") == "running")
            page._server.close(grace_s=0.0)
            wait_in(window, lambda: window.page.inner_text("#status") == "silent")
    assert "no answer for" in window.page.inner_text("#contact")


def wait_in(window: Window, condition: Any, timeout_s: float = 30.0) -> float:
    """Return the seconds until a condition holds, while the page works."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < timeout_s
        window.wait()
    return time.monotonic() - began_s


MODES = {
    "serial": (["-m", "serial", "create.env_manager.type=subprocess"], r"envs"),
    "parallel": (["-m", "parallel"], r"collector\d"),
    "seed": (["-m", "seed", "system.seed.actor_processes=2"], r"actor_process\d"),
    "ray": (["-m", "ray", "--workers", "2"], r"collector\d"),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", [*list(MODES)[:3], pytest.param("ray", marks=pytest.mark.ray)])
def test_a_killed_and_a_paused_worker_are_seen_within_seconds(mode: str, window: Window, tmp_path: Path) -> None:
    if mode in ("seed", "ray"):
        pytest.importorskip({"seed": "zmq"}.get(mode, mode))
    options, workers = MODES[mode]
    command = [sys.executable, "-m", "ding_like", *options, "-e", "cartpole", "-p", "dqn", "-s", "0"]
    command += ["--env-step", "4000000", "--exp-name", "run", "env.stop_value=600", "--page"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    output = tmp_path / "output.txt"
    with open(output, "wb") as file:
        run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: b"page: " in output.read_bytes())
        url = re.search(r"page: (\S+)", output.read_text())
        assert url is not None
        window.page.goto(url[1])
        wait_in(window, lambda: len(workers_of(window, workers)) >= 2 and is_learning(window), 120.0)
        killed, paused = workers_of(window, workers)[:2]

        os.kill(paused, signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)

        took_s = wait_in(window, lambda: (window.state_of(killed), window.state_of(paused)) == ("lost", "paused"))
        assert took_s < SEEN_S
        os.kill(paused, signal.SIGCONT)
        assert wait_in(window, lambda: window.state_of(paused) == "running") < SEEN_S
        base, token = url[1].split("/?token=")
        key = (tmp_path / "run/page.key").read_text().strip()
        stop = {"Authorization": f"Bearer {token}", "X-Run-Key": key}
        assert requests.post(f"{base}/stop", headers=stop, timeout=10).status_code == 202
        wait_in(window, lambda: window.page.inner_text("#status") == "interrupted", 60.0)
        assert "ding --resume run" in window.page.inner_text("#why")
        wait_in(window, lambda: "the process of the run has ended" in window.page.inner_text("#contact"), 60.0)
        assert run.wait(60.0) == 130
        assert window.said == []
    finally:
        run.kill()
        run.wait(60.0)


def workers_of(window: Window, name: str) -> list[int]:
    """Return the ids of the workers that run."""
    return [int(row[3]) for row in window.rows() if re.match(name, row[0]) and row[1] == "running" and row[3]]


def is_learning(window: Window) -> bool:
    """Return whether the run has made updates."""
    return "updates/s" in window.page.inner_text("#numbers") and bool(window.page.evaluate("known.evals.length"))
