"""Only the owner can read a new token; an unusable one is reported before Ray reports it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ding_like.comm.ray.cluster import check_token, describe_token, make_token
from ding_like.errors import ConfigError

ADDRESS = "10.0.0.1:6379"


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_a_token_is_only_its_owners(tmp_path: Path) -> None:
    path = make_token(tmp_path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(path.read_text())) == 32


def test_each_token_is_another(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()

    assert make_token(tmp_path / "a").read_text() != make_token(tmp_path / "b").read_text()


def test_a_token_in_a_file_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(make_token(tmp_path)))

    assert check_token(ADDRESS, allow_open=False) == "token"
    assert str(tmp_path / "token") in describe_token()


def test_a_token_in_the_environment_is_used_and_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abcdef")

    assert check_token(ADDRESS, allow_open=False) == "token"
    assert "RAY_AUTH_TOKEN" in describe_token() and "abcdef" not in describe_token()


def test_a_token_that_others_can_read_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make_token(tmp_path)
    path.chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))

    with caplog.at_level(logging.WARNING):
        assert check_token(ADDRESS, allow_open=False) == "token"

    assert "(mode 0644)" in caplog.text


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_a_missing_token_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))

    with pytest.raises(ConfigError, match=rf"{ADDRESS} is attached to with a token, and the token file {path}.*0600"):
        check_token(ADDRESS, allow_open=False)


def test_no_token_is_asked_for_only_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")

    with pytest.raises(ConfigError, match="RAY_AUTH_MODE=disabled.*anybody who reaches 10.0.0.1:6379 runs code"):
        check_token(ADDRESS, allow_open=False)
    assert check_token(ADDRESS, allow_open=True) == "disabled"


def test_a_token_that_is_there_is_used_also_where_none_need_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert check_token(ADDRESS, allow_open=True) == "disabled"

    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(make_token(tmp_path)))

    assert check_token(ADDRESS, allow_open=True) == "token"
