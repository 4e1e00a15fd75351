"""Every key of a config has a meaning, which `ding explain` and the page Settings show."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from ding_like.config.explain import Setting, all_settings
from ding_like.config.schema import class_defaults
from ding_like.config.tree import leaves, literal
from ding_like.entry.cli import main
from ding_like.policy import get_policy_cls

DOCS = Path(__file__).parents[2] / "docs"
_COUNTS = re.compile(r"(_s|_seconds|seconds|_freq|_iter|interval|_steps?|_after)$")
_UNITS = re.compile(r"second|update|step|episode|sample|batch|game|No effect|checkpoint", re.IGNORECASE)

settings = functools.cache(all_settings)


def named(setting: Setting) -> str:
    return f"{setting.part} {setting.type_name} {setting.path}: {setting.meaning!r}"


def run(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        main(line.split())
    except SystemExit as stop:
        assert stop.code in (0, 1)
    output = capsys.readouterr()
    return " ".join((output.out + output.err).split())


def test_every_key_has_a_comment_beside_its_default() -> None:
    assert len({setting.path for setting in settings()}) > 200
    assert [named(setting) for setting in settings() if len(setting.meaning.split()) < 3] == []


def test_meanings_of_times_and_counts_name_their_unit() -> None:
    counted = [
        setting for setting in settings() if _COUNTS.search(setting.path) and not isinstance(setting.default, bool)
    ]

    assert len(counted) > 100
    assert [named(setting) for setting in counted if not _UNITS.search(setting.meaning)] == []


@pytest.mark.parametrize("policy", ["dqn", "ppo", "sac", "rainbow"])
def test_explain_prints_the_defaults_of_a_policy(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    defaults = class_defaults(get_policy_cls({"type": policy}))
    main(["explain", "-p", policy])
    shown = dict(re.findall(r"^policy\.(\S+) = (.*)$", capsys.readouterr().out, re.MULTILINE))

    sections = ("type", "import_names", "model", "eval", "other")  # no keys with defaults of their own
    expected = {path: literal(value) for path, value in leaves(defaults) if path not in sections}
    assert {path: text for path, text in shown.items() if path not in sections} == expected


def test_explain_takes_the_end_of_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    line = run("explain log_show_after_iter", capsys)

    assert line.startswith("policy.learn.learner.hook.log_show_after_iter = 100 Updates between two")
    assert "(int: 1 or more)" in line


def test_explain_takes_a_section_and_names_who_has_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    line = run("explain policy.learn.schedule", capsys)

    assert "policy.learn.schedule.env_steps = None" in line and "policy.learn.schedule.lr_end = 0.0" in line
    assert "Of policy a2c, impala, pg" in line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("explain log_show_after_itr", "Did you mean policy.learn.learner.hook.log_show_after_iter?"),
        ("explain learn.batchsize", "Did you mean policy.learn.batch_size"),
        ("explain learn.clip_ratio -p dqn", "policy 'dqn' has no key 'learn.clip_ratio', which is of ppg, ppo"),
        ("explain batch_size -p dqnn", "did you mean 'dqn'"),
        ("explain system.seed.credit", "docs/seed.md"),
        ("explain", "Usage: ding explain"),
    ],
)
def test_explain_answers_what_it_does_not_find(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in run(line, capsys)


def test_explain_reads_the_comments_of_a_policy_of_your_own(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(in_tmp))
    Path("explained_policy.py").write_text(
        "from ding_like.policy import DQNPolicy\n\n\n"
        "class Mine(DQNPolicy):\n"
        "    config = dict(\n"
        "        # Share of the entropy in\n"
        "        # a target.\n"
        "        munchausen=0.9,\n"
        "        nstep=7,\n"
        "    )\n"
    )

    assert "= 0.9 Share of the entropy in a target. (float)" in run(
        "explain munchausen -p explained_policy:Mine", capsys
    )
    assert "policy.nstep = 7 Steps of reward" in run("explain policy.nstep -p explained_policy:Mine", capsys)


def test_the_page_has_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from settings_tables import tables  # type: ignore[import-not-found]

    rows = [line for line in tables().splitlines() if line.startswith("| `")]

    assert {re.split(r"`", row)[1] for row in rows} == {setting.path for setting in settings()}
    assert len(rows) == len({setting.path for setting in settings()})
    assert "<!-- tables of settings -->" in (DOCS / "settings.md").read_text()
