"""A request is what a key's owner signed, once, within five minutes."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from ding_like.comm.keys import Verifier, load_keys, make_keys, sign
from ding_like.comm.refusal import RefusedError
from ding_like.errors import ConfigError

KEYS = {"collector": b"c" * 32, "learner": b"l" * 32}
BODY = b'{"x":1}'


def header(*, key: bytes = KEYS["collector"], role: str = "collector", now_s: float = 1000.0) -> str:
    return sign(key, role, "POST", "/v1/x?a=1", BODY, now_s=now_s)


def role_of(text: str, *, method: str = "POST", path: str = "/v1/x?a=1", body: bytes = BODY) -> str:
    return Verifier(KEYS, wall_clock=lambda: 1000.0).role_of(text, method, path, body)


def test_a_signed_request_has_its_role() -> None:
    assert role_of(header()) == "collector"
    assert role_of(header(key=KEYS["learner"], role="learner")) == "learner"


def test_anything_that_was_changed_is_refused() -> None:
    signed = header()

    for change in (
        dict(method="PUT"),
        dict(path="/v1/x"),
        dict(path="/v1/x?a=2"),
        dict(path="/v1/X?a=1"),
        dict(body=BODY + b" "),
        dict(body=b""),
    ):
        with pytest.raises(RefusedError, match="signature does not fit"):
            role_of(signed, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("now_s", [1000.0 - 301, 1000.0 + 302, 1000.0 + 3600])
def test_a_request_of_another_time_is_refused(now_s: float) -> None:
    with pytest.raises(RefusedError, match="more than 300 s"):
        role_of(header(now_s=now_s))


def test_a_request_is_taken_once() -> None:
    verifier = Verifier(KEYS, wall_clock=lambda: 1000.0)
    signed = header()
    verifier.role_of(signed, "POST", "/v1/x?a=1", BODY)

    with pytest.raises(RefusedError, match="sent before"):
        verifier.role_of(signed, "POST", "/v1/x?a=1", BODY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Bearer x",
        "DL1 key=collector",
        header().replace("DL1", "dl1"),
        header() + " ",
        header().replace("key=collector", "key=learner"),
        header().replace("key=collector", "key=admin"),
        header(key=b"x" * 32),
        header().upper(),
        "DL1 key=collector,ts=1000,nonce=" + "0" * 32 + ",sig=" + "0" * 64,
    ],
)
def test_what_no_known_key_signed_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        role_of(text)

    assert caught.value.status == 401


def test_a_refused_signature_does_not_use_up_the_request() -> None:
    verifier = Verifier(KEYS, wall_clock=lambda: 1000.0)
    signed = header()
    with pytest.raises(RefusedError):
        verifier.role_of(signed, "POST", "/v1/x?a=1", b"changed")

    assert verifier.role_of(signed, "POST", "/v1/x?a=1", BODY) == "collector"


def test_a_key_file_is_its_owners_and_comes_back(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")

    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600
    assert load_keys(tmp_path / "keys") == keys
    assert len(set(keys.values())) == 3 and all(len(key) == 32 for key in keys.values())
    with pytest.raises(FileExistsError):
        make_keys(tmp_path / "keys")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"collector": "zz"}', '{"collector": "00"}', '{"root": "%s"}' % ("0" * 64)]
)
def test_a_file_that_is_no_key_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_text(text)

    with pytest.raises(ConfigError, match="key"):
        load_keys(tmp_path / "keys")


def test_a_key_of_one_role_is_enough_for_a_worker(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(json.dumps({"collector": "ab" * 32}))

    assert list(load_keys(tmp_path / "keys")) == ["collector"]
