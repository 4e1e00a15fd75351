"""Page of a run over HTTP: who gets an answer, what changes the run, and what is served."""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from ding_like.errors import CommError, ConfigError
from ding_like.report.details import Details, ProcessReport
from ding_like.report.run_console import Limits, Progress, RunConsole
from ding_like.serve.run_page import KEY_HEADER, RunPage

ROUTES = ("/", "/api/state", "/metrics", "/files/page.js", "/files/uplot/LICENSE", "/stop", "/save", "/other")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPage]:
    monkeypatch.setattr("ding_like.serve.run_page._LAST_WORD_S", 0.0)  # for a reader to come once more
    with RunPage() as opened:
        yield opened


@pytest.fixture
def run(page: RunPage, tmp_path: Path) -> Iterator[RunConsole]:
    """Return the console of a run that goes on."""
    with RunConsole(str(tmp_path), Limits(max_env_step=100)) as console:
        yield console


def place_of(page: RunPage) -> tuple[str, dict[str, str]]:
    """Return the address without the token, and headers with it."""
    base, token = page.url.split("/?token=")
    return base, {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer x"}, {"Authorization": "Bearer "}])
def test_without_the_token_every_route_refuses_and_says_nothing(
    page: RunPage, run: RunConsole, method: str, given: dict[str, str]
) -> None:
    base, _ = place_of(page)
    for route in ROUTES:
        answer = requests.request(method, base + route, headers={**given, KEY_HEADER: page.run.key}, timeout=10)
        assert answer.status_code == 403 and answer.text in ("", "Forbidden\n"), route
    assert requests.get(f"{base}/?token=x", timeout=10).status_code == 403


def test_the_token_opens_the_page_its_files_and_the_state(page: RunPage, run: RunConsole) -> None:
    base, headers = place_of(page)
    found = requests.get(page.url, timeout=10)
    files = re.findall(r'(?:src|href)="(files/[^"]+)"', found.text)

    assert found.status_code == 200 and len(files) == 4
    for file in files:
        assert requests.get(f"{base}/{file}", timeout=10).status_code == 200, file
    state = requests.get(f"{base}/api/state", headers=headers, timeout=10).json()
    assert state["experiment"] == run.title and state["processes"][0]["pid"] == os.getpid()
    assert requests.get(f"{base}/other", headers=headers, timeout=10).status_code == 404
    assert requests.get(f"{base}/stop", headers=headers, timeout=10).status_code == 405


@pytest.mark.parametrize(
    "name", ["../run_page.py", "..%2Frun_page.py", "uplot", "index.html", "uplot/LICENSE", "/etc/passwd"]
)
def test_only_the_page_s_own_files_are_served(page: RunPage, name: str) -> None:
    base, headers = place_of(page)
    assert requests.get(f"{base}/files/{name}", headers=headers, timeout=10).status_code == 404


def test_a_browser_is_allowed_nothing_but_the_page_s_own_files(page: RunPage) -> None:
    headers = requests.get(page.url, timeout=10).headers
    policy = headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
    text = (Path(__file__).parents[2] / "ding_like/serve/page/index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=|https?://", text), (
        "nothing inline, nothing from elsewhere"
    )
    script = (Path(__file__).parents[2] / "ding_like/serve/page/page.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_the_token_alone_changes_nothing(page: RunPage, run: RunConsole) -> None:
    run.save_asked = threading.Event()
    base, headers = place_of(page)

    for route in ("/stop", "/save"):
        for key in ({}, {KEY_HEADER: "x"}, {KEY_HEADER: ""}):
            answer = requests.post(base + route, headers={**headers, **key}, timeout=10)
            assert answer.status_code == 403 and "page.key" in answer.text
        in_url = requests.post(f"{base}{route}?key={page.run.key}", headers=headers, timeout=10)
        assert in_url.status_code == 403

    assert not run.save_asked.is_set() and page.run.state().status == "starting"


def test_the_key_of_the_run_s_folder_saves(page: RunPage, run: RunConsole) -> None:
    run.save_asked = threading.Event()
    base, headers = place_of(page)
    key = (Path(run.title) / "page.key").read_text().strip()

    answer = requests.post(f"{base}/save", headers={**headers, KEY_HEADER: key}, timeout=10)

    assert answer.status_code == 202 and run.save_asked.is_set()
    run.save_asked = None
    refused = requests.post(f"{base}/save", headers={**headers, KEY_HEADER: key}, timeout=10)
    assert refused.status_code == 409 and "saves no points on request" in refused.text


def test_only_the_owner_can_read_the_key_and_it_goes_with_the_run(page: RunPage, tmp_path: Path) -> None:
    file = tmp_path / "page.key"
    file.write_text("of a run that was killed")
    file.chmod(0o644)

    with RunConsole(str(tmp_path), Limits()):
        mode, text = stat.S_IMODE(file.stat().st_mode), file.read_text().strip()

    assert mode == 0o600 and text == page.run.key
    assert not file.exists()


def test_a_folder_that_cannot_be_written_to_costs_only_the_key(
    page: RunPage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ding_like"), RunConsole(str(tmp_path / "missing"), Limits()):
        assert page.run.state().experiment == str(tmp_path / "missing")
    assert "cannot stop or save it" in caplog.text


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": ""}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
)
def test_other_names_and_other_pages_are_refused(page: RunPage, headers: dict[str, str]) -> None:
    base, own = place_of(page)
    assert requests.get(f"{base}/api/state", headers={**own, **headers}, timeout=10).status_code == 403


def test_its_own_page_and_a_tunnel_to_it_are_answered(page: RunPage) -> None:
    base, own = place_of(page)
    tunnel = {"Host": "localhost:8080", "Origin": "http://localhost:8080"}
    assert requests.get(f"{base}/api/state", headers={**own, **tunnel}, timeout=10).status_code == 200


def test_prometheus_reads_the_metrics(page: RunPage, run: RunConsole) -> None:
    name = 'a"b\\c\n'
    run.details = lambda: Details(
        processes=[ProcessReport(name, 5, "far-away", heartbeat_s=2.0)], lost_rows={"too old": 7}
    )
    run.update(Progress(50, 3, 10.0, mean_return=21.5))
    base, headers = place_of(page)

    text = requests.get(f"{base}/metrics", headers=headers, timeout=10).text

    samples = {
        (sample.name, sample.labels.get("name", "")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["ding_env_steps_total", ""].value == 50 and samples["ding_rollout_return_mean", ""].value == 21.5
    assert samples["ding_fraction_done", ""].value == 0.5
    assert samples["ding_process_heartbeat_age_seconds", name].value == 2.0
    assert samples["ding_process_running", name].labels["state"] == "running"
    assert samples["ding_lost_rows_total", ""].labels == {"reason": "too old"}
    assert samples["ding_run_info", ""].labels["status"] == "running"
    assert "ding_eval_return_mean" not in text, "what is not known is left out"


def test_a_port_in_use_names_the_option(page: RunPage) -> None:
    port = int(place_of(page)[0].rpartition(":")[2])
    with pytest.raises(CommError, match=rf"the page cannot be served on 127.0.0.1:{port}: .*Give --page another port"):
        RunPage(port=port)


def test_an_unknown_host_names_the_option() -> None:
    with pytest.raises(ConfigError, match="--page names the host 'no.such.host.invalid'"):
        RunPage(host="no.such.host.invalid")


def test_other_runs_are_not_watched_once_the_page_is_closed(tmp_path: Path) -> None:
    with RunPage() as page:
        pass
    with RunConsole(str(tmp_path), Limits()):
        assert not (tmp_path / "page.key").exists()
    page.close()
