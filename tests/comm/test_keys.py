"""A key file is its owner's alone, and its keys are strong and different."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ding_like.comm.keys import ROLES, load_keys, make_keys, role_file
from ding_like.errors import ConfigError

STRONG = bytes(range(32)).hex()


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_key_file_is_its_owners_and_comes_back(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")

    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600
    assert load_keys(tmp_path / "keys") == keys
    assert len(set(keys.values())) == 3 and all(len(key) == 32 for key in keys.values())
    with pytest.raises(FileExistsError):
        make_keys(tmp_path / "keys")


def test_each_role_can_have_a_file_of_its_own(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys.json", per_role=True)

    assert [load_keys(role_file(tmp_path / "keys.json", role)) for role in ROLES] == [{r: keys[r]} for r in ROLES]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "keys.admin.json", "keys.collector.json", "keys.json", "keys.learner.json"
    ]  # fmt: skip


def test_no_key_file_is_written_if_one_of_them_is_there(tmp_path: Path) -> None:
    (tmp_path / "keys.learner.json").write_text("mine")

    with pytest.raises(FileExistsError):
        make_keys(tmp_path / "keys.json", per_role=True)
    assert [path.name for path in tmp_path.iterdir()] == ["keys.learner.json"]


def test_a_file_that_is_no_key_file_is_one_clear_error(tmp_path: Path) -> None:
    texts = [
        "",
        "[]",
        "{}",
        '{"collector": "zz"}',
        '{"collector": "00"}',
        json.dumps({"root": STRONG}),
        '{"collector": 7}',
        "[" * 9999,
    ]
    for text in texts:
        with pytest.raises(ConfigError, match="key"):
            load_keys(write(tmp_path / "keys", text))
            pytest.fail(f"{text!r:.40} is taken")


def test_a_key_file_that_others_can_read_or_change_is_refused(tmp_path: Path) -> None:
    for mode in (0o644, 0o640, 0o660, 0o602, 0o610):
        path = write(tmp_path / "keys", json.dumps({"collector": STRONG}), mode)
        with pytest.raises(ConfigError, match=rf"mode {mode:04o}.*chmod 600"):
            load_keys(path)
    path.chmod(0o400)
    assert list(load_keys(path)) == ["collector"]


def test_a_link_to_a_key_file_is_as_private_as_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "keys", json.dumps({"collector": STRONG}))
    (tmp_path / "link").symlink_to(path)

    assert list(load_keys(tmp_path / "link")) == ["collector"]
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_keys(tmp_path / "link")


def test_a_pipe_is_no_key_file_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys", 0o600)

    with pytest.raises(ConfigError, match="is not a file"):
        load_keys(tmp_path / "keys")


def test_a_key_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    for key in ("00" * 32, "ab" * 32, "0102" * 16, "00112233445566778899aa" * 3):
        with pytest.raises(ConfigError, match="key of collector can be guessed"):
            load_keys(write(tmp_path / "keys", json.dumps({"collector": key, "learner": STRONG})))
            pytest.fail(f"{key} is taken")


def test_one_key_for_two_roles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one key for several roles"):
        load_keys(write(tmp_path / "keys", json.dumps({"collector": STRONG, "learner": STRONG})))


def test_a_key_of_one_role_is_enough_for_a_worker(tmp_path: Path) -> None:
    assert list(load_keys(write(tmp_path / "keys", json.dumps({"collector": STRONG})))) == ["collector"]
