"""`ding profile`: run a training command for a while, and show where its time goes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ding_like.entry.modes import WholeNumber, echo, sub_command
from ding_like.errors import ConfigError, TrainingError
from ding_like.utils.processes import end_processes

if TYPE_CHECKING:
    import psutil

    from ding_like.report.profile import Profile

_RATE = 20  # samples a second; 50 were seen to halve the speed of a run of many threads
_CPU_EVERY_S = 0.5
_END_S = 60.0  # for the run to save and end, once it is asked to
_EPILOG = """\b
Examples:
  ding profile -m serial -e cartpole -p dqn
  ding profile --seconds 60 -m parallel -c my_config.py policy.learn.batch_size=256
  ding profile -m ray -c my_config.py --workers 4
"""
_OWN = {"ignore_unknown_options": True, "allow_interspersed_args": True}


@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF A RUN]... [KEY=VALUE]...")
@click.option(
    "--seconds", type=WholeNumber(5, 3600), default=30, metavar="N", help="Stop the run after N seconds. [30]"
)
def _profile(words: tuple[str, ...], seconds: int) -> None:
    """Train for a while, and show what each process and thread does: act, step envs, learn, wait for whom.

    Takes the options of `ding -m MODE`. The run is watched from outside, by py-spy, which slows it a little, and
    is stopped as by Ctrl-C. Writes profile.json and profile.png into its folder.
    """
    words = tuple(part for word in words for part in _split(word))
    if "-m" not in words and "--mode" not in words:
        raise ConfigError("say how to run: ding profile -m serial -c CONFIG, and the other options of a run.")
    words, folder = _with_folder(words)
    profile = watch(["-m", "ding_like.entry.cli", *words], seconds=seconds)
    if not folder.is_dir():
        raise TrainingError(f"the run has left no folder {folder}/: see what it printed above.")
    (folder / "profile.json").write_text(json.dumps(profile.to_plain(), indent=1) + "\n", encoding="utf-8")
    profile.draw(folder / "profile.png")
    echo("\n".join(["", *profile.table(), profile.verdict(), f"wrote {folder}/profile.json  profile.png"]))


profile_command = sub_command("profile", epilog=_EPILOG)(_profile)
profile_command.context_settings.update(_OWN)


def _split(word: str) -> list[str]:
    """Return --option=value as two words; any other word as it is."""
    return list(word.partition("=")[::2]) if word.startswith("--") and "=" in word else [word]


def _with_folder(words: Sequence[str]) -> tuple[tuple[str, ...], Path]:
    """Return the words with a folder for the run, and this: that of --exp-name, or a new one, profile or profile_N."""
    if "--exp-name" in words[:-1]:
        return tuple(words), Path(words[words.index("--exp-name") + 1])
    number, folder = 1, Path("profile")
    while folder.exists():
        number += 1
        folder = Path(f"profile_{number}")
    return (*words, "--exp-name", str(folder)), folder


def watch(arguments: Sequence[str], *, seconds: float) -> Profile:
    """Run Python with arguments for at most `seconds` under py-spy, and return what its threads did.

    Raises ConfigError where py-spy is not installed, and TrainingError where it may not watch.
    """
    spy = shutil.which("py-spy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if spy is None:
        raise ConfigError('`ding profile` needs py-spy: pip install "ding_like[profile]".')
    import psutil

    from ding_like.report.profile import Profile, group_cpu

    with tempfile.TemporaryDirectory() as place:
        raw = Path(place, "raw.txt")
        options = ["--subprocesses", "--threads", "--idle", "--nonblocking", "--rate", str(_RATE), "--format", "raw"]
        started_s = time.monotonic()
        run = subprocess.Popen([spy, "record", *options, "-o", str(raw), "--", sys.executable, *arguments])
        try:
            samples, names = _follow(psutil.Process(run.pid), run, until_s=started_s + seconds)
        finally:
            end_processes([run], own_s=_END_S)  # at Ctrl-C too, by which the run ends itself
        wall_s = time.monotonic() - started_s
        if not raw.exists():
            raise TrainingError(
                f"py-spy ended with status {run.returncode} and has written nothing; it says why above."
            )
        lines = raw.read_text(errors="replace").splitlines()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Profile.of(lines, cpu_s=group_cpu(samples), names=names, wall_s=wall_s, cores=cores)


def _follow(
    spy: psutil.Process, run: subprocess.Popen[bytes], *, until_s: float
) -> tuple[list[tuple[int, float]], dict[int, str]]:
    """Note the CPU seconds and names of the processes below `spy` until it ends; ask the run to end at `until_s`.

    A run that has not ended `_END_S` later is killed.
    """
    import psutil

    samples: list[tuple[int, float]] = []
    names: dict[int, str] = {}
    is_asked = False
    while run.poll() is None:
        with suppress(psutil.NoSuchProcess):
            names.update((process.pid, "main") for process in spy.children())
            for process in spy.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    times, name = process.cpu_times(), process.name()
                    samples.append((process.pid, times.user + times.system))
                    if name.startswith(("ding-", "ray::")):
                        names[process.pid] = name.removeprefix("ding-")
            now_s = time.monotonic()
            if now_s >= until_s + _END_S:
                _signal(spy.children(recursive=True), signal.SIGKILL)
                break
            elif now_s >= until_s and not is_asked:
                is_asked = True
                _signal(spy.children(), signal.SIGINT)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):  # Ctrl-C reaches the run too, which then ends
            run.wait(_CPU_EVERY_S)
    return samples, names


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    import psutil

    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
