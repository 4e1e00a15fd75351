"""`ding keys` writes keys of a coordinator, or with --curve those of a run with central inference."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.comm.keys import client_file, load_keys, load_seed_keys
from ding_like.entry.cli import main


def keys(*arguments: str) -> int:
    """Return the exit status of `ding keys`."""
    try:
        main(["keys", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_without_curve_a_key_for_each_role_is_written(tmp_path: Path) -> None:
    assert keys(str(tmp_path / "keys.json")) == 0

    assert list(load_keys(tmp_path / "keys.json")) == ["collector", "learner", "admin"]


def test_with_curve_a_drivers_and_a_workers_file_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.json"

    assert keys("--curve", str(path)) == 0

    assert capsys.readouterr().out == f"wrote {path}\nwrote {tmp_path / 'keys.worker.json'}\n"
    assert load_seed_keys(path).clients == {"worker": load_seed_keys(tmp_path / "keys.worker.json").own.public}
    assert keys("--curve", str(path)) == 1
    assert "is there already" in capsys.readouterr().err


def test_clients_are_named_renewed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert keys("--curve", str(path), "--client", "a", "--client", "b") == 0
    old = load_seed_keys(path)

    assert keys("--curve", str(path), "--client", "a", "--remove", "b") == 0

    now = load_seed_keys(path)
    assert now.server == old.server and list(now.clients) == ["a"] and now.clients["a"] != old.clients["a"]
    assert load_seed_keys(client_file(path, "a")).own.public == now.clients["a"]
    assert not client_file(path, "b").exists()


def test_options_that_make_no_sense_are_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, said in [
        (["--client", "a"], "add --curve"),
        (["--remove", "a"], "add --curve"),
        (["--curve", "--per-role"], "choose one"),
        (["--curve", "--client", "a/b"], "names of clients"),
        (["--curve", "--remove", "a"], "cannot be read"),
    ]:
        assert keys(str(tmp_path / "keys.json"), *options) == 1

        assert said in capsys.readouterr().err and not list(tmp_path.iterdir())
