"""The scripts that start a run on several hosts give each its own role's key, and leave none behind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "ding_like" / "entry" / "scripts"

# A `ding` that notes which keys it is given, and an `ssh` to this machine.
_DING = f"""#!{sys.executable}
import json, os, sys, time
arguments = sys.argv[1:]
if arguments[0] == "keys":
    from ding_like.comm.rest.keys import make_keys
    make_keys(arguments[-1], per_role="--per-role" in arguments)
    sys.exit()
module, file = (arguments[arguments.index(name) + 1] for name in ("-M", "--key-file"))
said = {{"module": module, "roles": sorted(json.load(open(file))), "mode": os.stat(file).st_mode & 0o777}}
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps(said) + "\\n")
until = time.monotonic() + 20
while module == "coordinator" and "-M" in arguments and os.environ.get("WAIT"):  # for the workers, as the real one does
    if len(open(os.environ["NOTES"]).readlines()) == 4 or time.monotonic() > until:
        break
    time.sleep(0.02)
"""
_SSH = """#!/bin/sh
[ "$1" = -tt ] && shift
shift
umask 000
exec sh -c "$1"
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("ding", _DING), ("ssh", _SSH)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    (tmp_path / "work").mkdir()
    return tmp_path


def run(there: Path, script: str, *arguments: str, **env: str) -> list[dict[str, object]]:
    command = ["sh", str(SCRIPTS / script), *arguments]
    subprocess.run(command, cwd=there / "work", env={**os.environ, **env}, check=True, timeout=60)
    notes = there / "notes"
    return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


@pytest.mark.slow
def test_over_ssh_each_host_gets_its_own_roles_key_and_keeps_none(there: Path) -> None:
    said = run(there, "ssh.sh", "config.py", "7000", "host1", "host2", "host3", MY_HOST="here", WAIT="1")

    assert sorted((str(note["module"]), note["roles"], note["mode"]) for note in said) == [
        ("collector", ["collector"], 0o600),
        ("collector", ["collector"], 0o600),
        ("coordinator", ["admin", "collector", "learner"], 0o600),
        ("learner", ["learner"], 0o600),
    ]
    assert not list((there / "work").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "roles"), [("0", ["admin", "collector", "learner"]), ("1", ["learner"]), ("2", ["collector"])]
)
def test_under_slurm_each_part_reads_its_own_roles_key(there: Path, task: str, roles: list[str]) -> None:
    subprocess.run(["ding", "keys", "--per-role", "keys.json"], cwd=there / "work", check=True, timeout=60)

    (said,) = run(
        there,
        "slurm.sh",
        "config.py",
        "7000",
        SLURM_PROCID=task,
        DING_KEYS=str(there / "work/keys.json"),
        DING_HOST="h",
    )

    assert said["roles"] == roles
