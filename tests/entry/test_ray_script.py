"""The script that starts a Ray cluster over ssh gives each node the token in a private file, and leaves nothing."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "entry/ray_cluster.sh"

# A `ray` that notes what it is started with and stays, and a `ding` whose dry run fits once two nodes have joined.
_NOTE = f"""#!{sys.executable}
import json, os, signal, sys
path = os.environ["RAY_AUTH_TOKEN_PATH"]
said = {{"arguments": sys.argv[1:], "mode": os.stat(path).st_mode & 0o777, "token": open(path).read(),
        "auth": os.environ["RAY_AUTH_MODE"]}}
def note():
    with open(os.environ["NOTES"] + os.path.basename(sys.argv[0]), "a") as notes:
        notes.write(json.dumps(said) + "\\n")
"""
_RAY = _NOTE + "note()\nsignal.pause()\n"
_DING = (
    _NOTE
    + """
if "--dry-run" in sys.argv:
    here = os.environ["NOTES"] + "ray"
    sys.exit(not os.path.exists(here) or len(open(here).readlines()) < 3)
note()
sys.exit(int(os.environ.get("STATUS", 0)))
"""
)
# With -tt the command has a terminal, whose end is a SIGHUP for all of its processes.
_SSH = f"""#!{sys.executable}
import os, signal, subprocess, sys
os.umask(0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
there = subprocess.Popen(["sh", "-c", sys.argv[-1]], start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: os.killpg(there.pid, signal.SIGHUP))
sys.exit(there.wait())
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("ding", _DING), ("ray", _RAY), ("ssh", _SSH), ("sleep", "#!/bin/sh\nexec /bin/sleep 0.05\n")):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(tmp_path / "notes-"))
    (tmp_path / "work").mkdir()
    return tmp_path


def run(there: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(SCRIPT), *arguments],
        cwd=there / "work",
        env={**os.environ, "MY_HOST": "head", **env},
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )


def notes(there: Path, program: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (there / f"notes-{program}").read_text().splitlines()]


def test_nodes_join_with_one_token_that_only_the_user_can_read(there: Path) -> None:
    done = run(there, "my_config.py", "6379", "one", "two", DING_ARGS="-s 1")

    assert done.returncode == 0, done.stderr
    nodes, (ding,) = notes(there, "ray"), notes(there, "ding")
    assert len({node["token"] for node in [*nodes, ding]}) == 1 and len(nodes[0]["token"].strip()) == 64
    assert {(node["mode"], node["auth"]) for node in [*nodes, ding]} == {(0o600, "token")}
    assert sum("--head" in node["arguments"] for node in nodes) == 1
    assert sum("--address=head:6379" in node["arguments"] for node in nodes) == 2
    assert ding["arguments"] == ["-m", "ray", "-c", "my_config.py", "--address", "head:6379", "-s", "1"]


def test_the_status_is_that_of_the_run_and_no_token_and_no_node_is_left(there: Path) -> None:
    assert run(there, "my_config.py", "6379", "one", "two", STATUS="3").returncode == 3

    assert not list((there / "work").glob("*.token"))
    left = subprocess.run(["pgrep", "-f", str(there / "bin" / "ray")], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_where_the_workers_never_fit_the_last_plan_is_shown(there: Path) -> None:
    done = run(there, "my_config.py", "6379", DING_TRIES="2")  # one node, and three are wanted

    assert done.returncode == 1 and not list((there / "work").glob("*.token"))
