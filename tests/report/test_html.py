"""The page about an experiment: whole, escaped, and in need of nothing else."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from ding_like.entry.results import report
from ding_like.entry.results import report_command as command
from ding_like.errors import ConfigError
from tests.report.run_folder import RESULT, training_and_evaluation, write_recorded, write_run, write_seeds

_VOID = {"meta", "img"}


class Page(HTMLParser):
    """Page that was read: what it shows, and the addresses in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.shown = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.shown += data


def read(path: Path) -> Page:
    page = Page(path.read_text())
    assert page.open == [], "every element is closed"
    return page


def test_a_page_of_five_seeds_holds_verdict_curves_scores_and_commands(tmp_path: Path) -> None:
    folder = write_recorded(tmp_path, "dqn")
    (folder / "seed3" / "agent.gif").write_bytes(b"GIF89a")

    page = read(report(folder))

    for words in (
        "dqn on CartPole-v1",
        "5 of 5 ended",
        "366.6",
        "362.2",
        "95% CI [260.1, 468.9]",
        "ding -m serial -e cartpole -p dqn -s 0..4",
        f"ding -m serial -c {folder}/total_config.py -s 0 -s 1 -s 2 -s 3 -s 4",
        "an episode of the best model, seed 3",
    ):
        assert words in page.shown
    curves = [source for source in page.sources if source.startswith("data:image/svg+xml;base64,")]
    assert len(curves) == 6, "all seeds, and each alone"
    assert [source for source in page.sources if source not in curves] == ["data:image/gif;base64,R0lGODlh"]


def test_a_page_asks_nothing_of_the_network_and_runs_no_script(tmp_path: Path) -> None:
    path = report(write_recorded(tmp_path, "ppo"))

    page, text = read(path), path.read_text()
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert all(source.startswith("data:") for source in page.sources)
    assert "url(" not in text and "@import" not in text
    assert "http" not in text


EVIL = "<script>alert(1)</script>\"'&"


def test_everything_is_escaped(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "<b>exp",
        [*training_and_evaluation(), {"source": "evaluator", "env_step": 4100, EVIL: 0.5}],
        result={**RESULT, "command": f"ding {EVIL}", "host": EVIL, "versions": {EVIL: EVIL}, "finish_time": EVIL},
        policy=EVIL,
        env_id=EVIL,
    )
    (folder / "config_diff.txt").write_text(f"key  default  value\n{EVIL}  {EVIL}  {EVIL}\n")
    (folder / "formatted_total_config.py").write_text(EVIL)

    path = report(folder)

    page = read(path)
    assert "script" not in page.tags and "b" not in page.tags
    assert page.shown.count(EVIL) >= 9


def test_control_characters_are_shown_escaped(tmp_path: Path) -> None:
    evil = "exp\x1b]0;title\x07\x9b31m"
    result = {**RESULT, "command": evil, "host": evil}
    folder = write_run(tmp_path / evil, training_and_evaluation(), result=result, policy=evil, env_id=evil)

    text = report(folder).read_text()

    assert not set(text) & set("\x1b\x07\x9b")
    assert text.count(r"exp\x1b]0;title\x07\x9b31m") >= 5


def test_a_run_alone_shows_its_evaluations_and_its_config(tmp_path: Path) -> None:
    result = {**RESULT, "command": "ding -m serial -c c.py", "host": "box", "commit": "abc", "versions": {"torch": "9"}}
    folder = write_run(tmp_path / "exp", training_and_evaluation(), result=result)
    (folder / "config_diff.txt").write_text(
        'key              default  value\npolicy.nstep     1        3\nenv.import_names  []       ["a.b",  "c"]\n'
    )

    page = read(report(folder))

    for words in ("solved", "95% CI [460, 500], 2 fresh episodes", "2 settings are not the defaults", "policy.nstep"):
        assert words in page.shown
    for words in ("ding -m serial -c c.py", "box", "abc", "torch", "3,500"):
        assert words in page.shown
    assert '["a.b",  "c"]' in page.shown and "--resume" not in page.shown


@pytest.mark.parametrize(
    ("value", "stop", "word"),
    [(480.0, 475.0, "solved"), (470.0, 475.0, "stop value not reached"), (470.0, 1e10, "done")],
)
def test_the_verdict_is_of_the_last_model(tmp_path: Path, value: float, stop: float, word: str) -> None:
    result = {**RESULT, "eval_value": value, "eval_value_raw": [value]}
    folder = write_run(tmp_path / "exp", training_and_evaluation(), result=result, stop_value=stop)

    assert f"CartPole-v1 {word}" in read(report(folder)).shown


def test_a_run_that_has_not_ended_is_shown_with_the_command_that_resumes_it(tmp_path: Path) -> None:
    page = read(report(write_run(tmp_path / "exp", training_and_evaluation())))

    assert "not ended" in page.shown and f"ding --resume {tmp_path / 'exp'}" in page.shown
    assert "last model returns-" not in page.shown


def test_seeds_that_have_not_ended_show_their_last_words(tmp_path: Path) -> None:
    folder = write_seeds(tmp_path / "exp", {0: 480.0, 1: None}, more=(2,))
    (folder / "log").mkdir()
    for seed in (0, 1, 2):
        (folder / "log" / f"seed{seed}.txt").write_text(f"words of {seed}\n")

    page = read(report(folder))

    assert "2 of 3 not ended" in page.shown and "words of 1" in page.shown and "words of 2" in page.shown
    assert "words of 0" not in page.shown


def test_what_an_env_measures_is_shown_over_seeds(tmp_path: Path) -> None:
    folder = write_seeds(tmp_path / "exp", {0: 480.0, 1: 300.0})
    for seed, last in ((0, 0.75), (1, 0.25)):
        with open(folder / f"seed{seed}" / "metrics.jsonl", "a") as file:
            for step, value in ((500, 0.0), (4000, last)):
                file.write(json.dumps({"source": "evaluator", "env_step": step, "is_success": value}) + "\n")

    page = read(report(folder))

    assert "What the env measures" in page.shown and "is_success, mean of 2 seeds" in page.shown
    assert "0.75" in page.shown and "0.25" in page.shown
    assert "What the env measures" not in read(report(write_recorded(tmp_path, "dqn"))).shown


def test_the_command_prints_where_the_page_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_seeds(tmp_path / "exp", {0: 480.0})

    assert CliRunner().invoke(command, ["exp"]).output == "exp/report.html\n"
    assert CliRunner().invoke(command, ["exp", "-o", "a/b.html"]).output == "a/b.html\n"
    assert read(tmp_path / "a/b.html").shown


@pytest.mark.parametrize(
    ("folder", "out", "words"),
    [("nope", None, "no experiment folder 'nope'"), ("exp", "r.pdf", r"not 'r\.pdf': --out r\.html")],
)
def test_what_cannot_be_reported_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, out: str | None, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_seeds(tmp_path / "exp", {0: 480.0})

    with pytest.raises(ConfigError, match=words):
        report(folder, out)
