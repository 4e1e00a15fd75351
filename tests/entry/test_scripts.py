"""Launch scripts in `entry/`: they run, give each host the key of its own role, and leave no key behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import wait_until

SCRIPTS = Path(__file__).parents[2] / "entry"

# A `ding` that notes which keys it is given, and an `ssh` to this machine.
_DING = f"""#!{sys.executable}
import json, os, sys, time
arguments = sys.argv[1:]
if arguments[0] == "keys":
    from ding_like.comm.keys import make_keys
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
        *[("collector", ["collector"], 0o600)] * 2,
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

    env = {"SLURM_PROCID": task, "DING_KEYS": str(there / "work/keys.json"), "DING_HOST": "h"}
    (said,) = run(there, "slurm.sh", "config.py", "7000", **env)

    assert said["roles"] == roles


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sh")), ids=lambda path: path.name)
def test_a_script_fits_on_a_screen_and_explains_itself_without_arguments(script: Path, tmp_path: Path) -> None:
    assert len(script.read_text().splitlines()) <= 40

    done = subprocess.run(["sh", str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2 and f"{script.name} CONFIG" in done.stdout and not list(tmp_path.iterdir())


CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
SHORT = "--env-step 1500 env.n_evaluator_episode=10 policy.learn.learner.hook.save_ckpt_after_iter=50"


@pytest.fixture
def real_ding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder; `ding` and `torchrun` in the PATH are this interpreter's."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(SCRIPTS.parent))
    monkeypatch.setenv("DING_ARGS", SHORT)
    return tmp_path


@pytest.mark.slow
def test_a_run_of_one_machine_goes_on_where_it_was_stopped(real_ding: Path) -> None:
    command = ["sh", str(SCRIPTS / "one_machine.sh"), str(CONFIG), "exp"]
    with subprocess.Popen(command, cwd=real_ding, start_new_session=True) as running:
        try:
            wait_until(lambda: any((real_ding / "exp").glob("ckpt/*")), "the first checkpoint", timeout_s=120)
            subprocess.run(["pkill", "-TERM", "-P", str(running.pid)], check=True)
            assert running.wait(60) == 143
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)

    assert not (real_ding / "exp/result.json").exists()
    subprocess.run(command, cwd=real_ding, check=True, timeout=240)
    assert json.loads((real_ding / "exp/result.json").read_text())["env_step"] >= 1500


def test_a_run_of_one_machine_that_fails_is_resumed_a_few_times(there: Path) -> None:
    fails = there / "bin/ding"
    fails.write_text('#!/bin/sh\nmkdir -p exp; echo "$@" >> calls; kill -9 $$\n')

    done = subprocess.run(
        ["sh", str(SCRIPTS / "one_machine.sh"), "c.py", "exp", "ray"], cwd=there / "work", check=False
    )

    assert done.returncode == 137
    assert (there / "work/calls").read_text().splitlines() == ["-m ray -c c.py --exp-name exp", *["--resume exp"] * 3]


@pytest.mark.slow
def test_ranks_start_under_torchrun(real_ding: Path) -> None:
    command = ["sh", str(SCRIPTS / "torchrun.sh"), str(CONFIG), "2"]
    done = subprocess.run(command, cwd=real_ding, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(real_ding.glob("*/result.json"))) == 1


# Slurm of one machine: `sbatch` runs the script as a job, `srun` as that many tasks beside each other.
_SBATCH = """#!/bin/sh
export SLURM_JOB_ID=7 SLURM_JOB_NODELIST=localhost SLURM_NTASKS=${1#--ntasks=}
shift
exec "$@"
"""
_SRUN = f"""#!{sys.executable}
import os, signal, subprocess, sys
arguments = [each for each in sys.argv[1:] if not each.startswith("--")]
tasks = [
    subprocess.Popen(arguments, env={{**os.environ, "SLURM_PROCID": str(task)}})
    for task in range(int(os.environ["SLURM_NTASKS"]))
]
sys.exit(max(task.wait() for task in tasks))
"""
_SCONTROL = """#!/bin/sh
[ "$1 $2" = "show hostnames" ] && echo "$3"
"""


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    for name, text in programs.items():
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def trained(folder: Path, *command: str) -> None:
    """Run a script with the real `ding`, and check that a run has ended in order and no key is left."""
    (folder / "work").mkdir()
    with subprocess.Popen(command, cwd=folder / "work", start_new_session=True) as running:
        try:
            assert running.wait(240) == 0, [path.read_text()[-1000:] for path in folder.glob("work/*.txt")]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    (result,) = (json.loads(path.read_text()) for path in folder.glob("work/*/result.json"))
    assert result["env_step"] >= 1500 and result["train_iter"] > 0
    assert not list(folder.glob("work/*key*.json"))


@pytest.mark.slow
def test_over_ssh_a_run_trains(real_ding: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(real_ding, monkeypatch, ssh=_SSH)
    monkeypatch.setenv("MY_HOST", "127.0.0.1")

    trained(real_ding, "sh", str(SCRIPTS / "ssh.sh"), str(CONFIG), free_port(), "one", "two")


@pytest.mark.slow
def test_under_slurm_a_run_trains(real_ding: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(real_ding, monkeypatch, sbatch=_SBATCH, srun=_SRUN, scontrol=_SCONTROL)

    trained(real_ding, "sbatch", "--ntasks=3", str(SCRIPTS / "slurm.sh"), str(CONFIG), free_port())


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(400)
def test_on_a_ray_cluster_over_ssh_a_run_trains(real_ding: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(real_ding, monkeypatch, ssh=_SSH)
    monkeypatch.setenv("MY_HOST", "127.0.0.1")
    monkeypatch.setenv("DING_ARGS", f"{SHORT} --workers 2")

    trained(real_ding, "sh", str(SCRIPTS / "ray_cluster.sh"), str(CONFIG), free_port(), "one")

    assert not list(real_ding.glob("work/*.token"))
