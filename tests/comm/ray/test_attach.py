"""A cluster that runs already: with its token this process is let in, and else told why not in one line."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.ray.cluster import RayCluster, check_token, describe_token, make_token, probe
from ding_like.errors import CommError, ConfigError
from tests.comm.ray.test_own_cluster import child

WRONG = "ab" * 32


@pytest.fixture
def token(ray_cluster: RayCluster) -> str:
    assert ray_cluster.folder is not None
    return str(ray_cluster.folder / "token")


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Return the home of a user without a token."""
    return str(tmp_path)


def attached(address: str, **variables: str) -> dict[str, Any]:
    with child("attach", address, **variables) as program:
        return program.hear()


@pytest.mark.ray
def test_with_the_token_a_program_is_let_in_and_leaves_it_running(ray_cluster: RayCluster, token: str) -> None:
    said = attached(ray_cluster.address, RAY_AUTH_TOKEN_PATH=token)

    assert said["attached"] == ray_cluster.address and not said["is_own"] and said["cpus"] > 0


@pytest.mark.ray
@pytest.mark.slow
def test_without_a_token_it_is_told_which_is_missing(ray_cluster: RayCluster, home: str) -> None:
    said = attached(ray_cluster.address, HOME=home)

    kind, message = said["error"]
    assert kind == "ConfigError" and f"{home}/.ray/auth_token" in message and "\n" not in message
    assert "RAY_AUTH_TOKEN_PATH" in message


@pytest.mark.ray
def test_a_wrong_token_is_refused_in_one_line_that_names_it(ray_cluster: RayCluster, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text(WRONG)
    wrong.chmod(0o600)

    kind, message = attached(ray_cluster.address, RAY_AUTH_TOKEN_PATH=str(wrong))["error"]

    assert kind == "CommError" and message.startswith(f"Ray at {ray_cluster.address} refuses this token")
    assert str(wrong) in message and "RAY_AUTH_MODE=token" in message and "\n" not in message
    assert WRONG not in message


@pytest.mark.ray
@pytest.mark.slow
def test_a_program_that_asks_for_no_token_is_refused(ray_cluster: RayCluster) -> None:
    kind, message = attached(ray_cluster.address, RAY_AUTH_MODE="disabled")["error"]

    assert kind == "ConfigError" and "RAY_AUTH_MODE=disabled" in message and "allow_open" in message


@pytest.mark.ray
@pytest.mark.slow
def test_other_versions_are_said(ray_cluster: RayCluster, token: str) -> None:
    with child("attach_as_older", ray_cluster.address, RAY_AUTH_TOKEN_PATH=token) as program:
        kind, message = program.hear()["error"]

    assert kind == "CommError" and "other versions" in message and "2.0.0" in message


@pytest.mark.ray
@pytest.mark.slow
def test_a_connection_of_the_programs_own_is_used_and_stays(ray_cluster: RayCluster, token: str) -> None:
    with child("borrow", ray_cluster.address, RAY_AUTH_TOKEN_PATH=token, RAY_AUTH_MODE="token") as program:
        said = program.hear()

    assert said["same"] and said["still"] and said["other"][0] == "ConfigError"


@pytest.fixture
def silent_address() -> Iterator[str]:
    """Return an address where connections are neither taken nor refused."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        # The queue of a server that takes none is full after these.
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(address)
        yield f"127.0.0.1:{address[1]}"


def test_an_address_that_does_not_answer_is_given_up(silent_address: str) -> None:
    with pytest.raises(CommError, match=f"nothing answers at {silent_address}.*timed out"):
        probe(silent_address)


def test_an_address_where_nothing_listens_is_named_with_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/run/secrets/ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    with pytest.raises(CommError, match=f"nothing answers at {address} .*/run/secrets/ray"):
        probe(address)


@pytest.mark.parametrize("address", ["auto", "ray://head:10001", "head", ":6379", "head:port", "head:70000", "local"])
def test_what_is_no_address_is_refused_before_a_token_is_looked_for(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=f"is '{address}'; give host:port of the Ray cluster's head"):
        RayCluster(address)


def test_a_head_whose_name_is_not_known_is_refused_before_a_token_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"--address .* names the host 'nosuchhost.invalid', which .* cannot resolve"):
        RayCluster("nosuchhost.invalid:6379")


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
