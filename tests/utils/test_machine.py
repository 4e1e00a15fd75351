"""Addresses that others reach."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from ding_like.errors import ConfigError
from ding_like.utils.processes import check_known, coordinator_url, is_loopback, reachable, reachable_url


class NoWayOut(socket.socket):
    """Socket of a machine without a route to another network."""

    def connect(self, address: Any) -> None:
        raise OSError(101, "Network is unreachable")


def named(*addresses: str) -> Any:
    return lambda name, port, family: [(family, 1, 6, "", (each, 0)) for each in addresses]


def test_an_address_of_its_own_is_what_others_reach() -> None:
    for host in ["127.0.0.1", "10.0.0.5", "learner.example", "fe80::1"]:
        assert reachable(host) == host


def test_every_address_is_named_by_one_that_packets_leave_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: None)
    monkeypatch.setattr(socket.socket, "getsockname", lambda self: ("10.1.2.3", 5))

    assert reachable("0.0.0.0") == "10.1.2.3"
    assert reachable_url("http://0.0.0.0:7000") == "http://10.1.2.3:7000"


@pytest.mark.parametrize(
    ("known", "found"), [(("127.0.1.1", "10.0.0.5"), "10.0.0.5"), (("127.0.1.1",), "127.0.0.1"), ((), "127.0.0.1")]
)
def test_without_a_way_out_the_machines_name_says_it(
    monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...], found: str
) -> None:
    monkeypatch.setattr(socket, "socket", NoWayOut)
    monkeypatch.setattr(socket, "getaddrinfo", named(*known))

    assert reachable("0.0.0.0") == found


def test_a_url_of_version_six_keeps_its_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", NoWayOut)
    monkeypatch.setattr(socket, "getaddrinfo", named("2001:db8::7"))

    assert reachable_url("http://[::]:7000") == "http://[2001:db8::7]:7000"


def test_it_is_found_here() -> None:
    assert reachable("0.0.0.0") != "0.0.0.0" and not is_loopback("10.0.0.1")


def test_a_name_that_cannot_be_resolved_is_refused_with_the_option_and_the_fix() -> None:
    for host in ("nosuchhost.invalid", "a..b", "x" * 300):
        with pytest.raises(ConfigError, match=r"--host names the host '.*', which .* cannot resolve; give 1\."):
            check_known(host, "--host", "give 1")
    for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "*", "192.0.2.1"):
        check_known(host, "--host", "give 1")


def test_the_scheme_of_an_address_may_be_left_out() -> None:
    for text in ("http://localhost:7311", "localhost:7311", "http://localhost:7311/"):
        assert coordinator_url(text) == "http://localhost:7311"


def test_what_is_no_address_is_refused_with_what_was_expected() -> None:
    for text in ("localhost", "ftp://localhost:7311", "http://:7311", "h:port", "h:99999", ""):
        with pytest.raises(ConfigError, match=r"expected http://HOST:PORT"):
            coordinator_url(text)
            pytest.fail(f"{text!r} is taken")
