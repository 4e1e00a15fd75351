"""Checks of the machine and of what is installed: facts, and what is odd among them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_info

import ding_like
from ding_like.envs.check import Finding
from ding_like.utils.processes import no_window, num_cores
from ding_like.utils.registries import DISTRIBUTION, pip_line

_LEAST_DISK_GB, _LEAST_MEMORY_MB = 2.0, 256.0
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_PACKAGES = ("torch", "numpy", "gymnasium")
_OLDEST_CLOCK = 1_704_067_200  # 2024-01-01: no release of this package is older
_LONGEST_TICK_S = 0.02  # of the clock that measures durations
_DRIFT_S, _SKEW_S = 0.5, 2.0
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")
_NAME = re.compile(r"[\w.-]+")


class Fact(NamedTuple):
    """Thing that was looked at, and what it is."""

    topic: str
    text: str


class Checkup(NamedTuple):
    """Facts about the machine, and what is odd among them."""

    facts: list[Fact]
    findings: list[Finding]


Check = Callable[[Path], Iterator[Fact | Finding]]


def check_environment(folder: str | Path = ".") -> Checkup:
    """Return what a run in `folder` would find on this machine."""
    wall, steady = time.time(), time.monotonic()
    found = [each for check in CHECKS for each in check(Path(folder))]
    moved_s = (time.time() - wall) - (time.monotonic() - steady)
    if abs(moved_s) > _DRIFT_S:
        seen = f"the wall clock moved by {moved_s:+.1f} s while this machine was looked at"
        fix = "look at what sets the clock (NTP, a VM); durations are measured by another clock"
        found.append(Finding("warning", "clock", seen, "a clock that runs evenly", fix))
    return Checkup(
        [each for each in found if isinstance(each, Fact)], [each for each in found if isinstance(each, Finding)]
    )


def _versions(folder: Path) -> Iterator[Fact | Finding]:
    yield Fact("python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    yield Fact("ding_like", f"{ding_like.__version__} at {Path(ding_like.__file__).parent}")
    for name in _PACKAGES:
        yield Fact(name, importlib.metadata.version(name))


def _compiled_parts(folder: Path) -> Iterator[Fact | Finding]:
    try:
        from ding_like.data import _buffer_rows, _sum_tree
    except ImportError as error:
        fix = f"install a C compiler, then  pip install --force-reinstall --no-deps {DISTRIBUTION}"
        yield Fact("C parts", "not built: numpy does their work")
        yield Finding("note", "C parts", f"prioritised replay is slower without them ({error})", "built parts", fix)
        return
    yield Fact("C parts", f"built: {', '.join(each.__name__ for each in (_buffer_rows, _sum_tree))}")


def _threads(folder: Path) -> Iterator[Fact | Finding]:
    cores, threads = num_cores(), torch.get_num_threads()
    given = {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ}
    listed = "".join(f", {name}={value}" for name, value in given.items())
    yield Fact("cores", f"{cores} for this process; torch takes {threads}{listed}")
    for name, value in given.items():
        if value.isdigit() and int(value) > cores:
            seen = f"{name} is {value}, and this process has {cores} cores"
            yield Finding("warning", "threads", seen, f"{cores} or less", f"export {name}={max(cores // 2, 1)}")


def _blas(folder: Path) -> Iterator[Fact | Finding]:
    np.ones((2, 2)) @ np.ones((2, 2))  # loads it
    found = {f"{each['internal_api']} {each.get('version') or ''}".strip(): each for each in threadpool_info()}
    yield Fact("BLAS", ", ".join(f"{name} (threads: {each['num_threads']})" for name, each in found.items()) or "none")


def _gpu(folder: Path) -> Iterator[Fact | Finding]:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = [torch.cuda.get_device_name(number) for number in range(count)]
    built = "" if torch.version.cuda else "; this torch is built for CPUs"
    yield Fact("GPU", f"{', '.join(names) or 'none that torch can use'}{'' if names else built}")
    if not names and Path("/dev/nvidia0").exists():
        seen = f"this machine has a GPU that torch {torch.__version__} cannot use{built}"
        fix = "install the CUDA build of torch: https://pytorch.org/get-started/locally"
        yield Finding("warning", "GPU", seen, "torch.cuda.is_available()", fix)


def _disk(folder: Path) -> Iterator[Fact | Finding]:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    free_gb = shutil.disk_usage(there).free / 1e9
    yield Fact("disk", f"{free_gb:,.1f} GB free in {there}")
    if not os.access(there, os.W_OK):
        yield Finding("fault", "disk", f"{there} cannot be written", "a folder of yours", "cd to another folder")
    if free_gb < _LEAST_DISK_GB:
        seen = f"{free_gb:.2f} GB are free in {there}, where experiments go"
        fix = "free some, or give --exp-name a folder of another disk"
        yield Finding("warning", "disk", seen, f"{_LEAST_DISK_GB:g} GB or more", fix)


def _shared_memory(folder: Path) -> Iterator[Fact | Finding]:
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield Fact("shared memory", "no /dev/shm: the system places it elsewhere")
        return
    free_mb = shutil.disk_usage(shared).free / 1e6
    yield Fact("shared memory", f"{free_mb:,.0f} MB free in {shared}")
    if free_mb < _LEAST_MEMORY_MB:
        seen = f"{shared} has {free_mb:,.0f} MB free; envs in processes of their own pass observations through it"
        fix = "docker run --shm-size=2g, or delete what is left over there"
        yield Finding("warning", "shared memory", seen, f"{_LEAST_MEMORY_MB:g} MB or more", fix)


def _ports(folder: Path) -> Iterator[Fact | Finding]:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                yield Fact("ports", f"127.0.0.1:{port} could be opened and reached")
    except OSError as error:
        fix = "allow connections of this machine with itself; serial runs need none"
        yield Finding("fault", "ports", f"127.0.0.1 cannot be used: {error.strerror or error}", "a free port", fix)


def _limits(folder: Path) -> Iterator[Fact | Finding]:
    try:
        import resource
    except ImportError:
        yield Fact("limits", "this system has no ulimit")
        return
    files, processes = resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC
    for name, kind, least, option in (("open files", files, 1024, "n"), ("processes", processes, 512, "u")):
        soft, _ = resource.getrlimit(kind)
        is_free = soft == resource.RLIM_INFINITY
        yield Fact(name, "unlimited" if is_free else f"{soft:,} allowed")
        if not is_free and soft < least:
            seen = f"{soft:,} {name} are allowed at a time"
            yield Finding("warning", "limits", seen, f"{least:,} or more", f"ulimit -{option} {4 * least}")


def _clock(folder: Path) -> Iterator[Fact | Finding]:
    tick_s = time.get_clock_info("monotonic").resolution
    yield Fact("clock", f"{time.strftime('%Y-%m-%d %H:%M:%S %Z (%z)')}, ticks of {tick_s:.0e} s")
    if tick_s > _LONGEST_TICK_S:
        seen = f"the clock that measures durations ticks every {tick_s * 1e3:.0f} ms"
        yield Finding("warning", "clock", seen, "a millisecond or less", "choose another clock source for this machine")
    if time.time() < _OLDEST_CLOCK:
        seen = f"the date of this machine is {time.strftime('%Y-%m-%d')}"
        yield Finding("warning", "clock", seen, "today: TLS and the names of runs need it", "timedatectl set-ntp true")
    if not _is_zone(time.strftime("%z")):
        seen = f"the time zone is {time.strftime('%z')} from UTC, which no place has"
        yield Finding("warning", "clock", seen, "-12:00 to +14:00, in quarters", "unset TZ, or TZ=Europe/Berlin")
    if abs(off_s := _file_clock_s(folder)) > _SKEW_S:
        seen = f"a file that is written in {folder.absolute()} is dated {off_s:+.1f} s from the clock of this machine"
        fix = "set both clocks by NTP: the disk is of another machine"
        yield Finding("warning", "clock", seen, f"{_SKEW_S:g} s or less", fix)


def _file_clock_s(folder: Path) -> float:
    """Return how far the clock by which files of a folder are dated is ahead; 0 where none can be written."""
    try:
        with tempfile.TemporaryFile(dir=folder if folder.is_dir() else None) as file:
            file.write(b"x")
            file.flush()
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:  # `_disk` reports it
        return 0.0


def _is_zone(offset: str) -> bool:
    """Return whether an offset from UTC, "+0530" say, is that of a place."""
    minutes = int(offset[:3] + "0") * 6 + int(offset[0] + offset[3:5])
    return -720 <= minutes <= 840 and minutes % 15 == 0


def _rendering(folder: Path) -> Iterator[Fact | Finding]:
    import gymnasium

    try:
        with no_window(), closing(gymnasium.make("CartPole-v1", render_mode="rgb_array")) as env:
            env.reset(seed=0)
            frame = np.asarray(env.render())
    except (gymnasium.error.Error, ImportError, OSError) as error:
        fix = pip_line("classic")
        yield Finding("note", "rendering", f"CartPole-v1 has no picture: {error}", "a video at the end of a run", fix)
        return
    yield Fact("rendering", f"CartPole-v1 gives pictures of {frame.shape[1]}x{frame.shape[0]}")
    if not frame.any():
        yield Finding("warning", "rendering", "the picture of CartPole-v1 is black", "a picture", pip_line("classic"))


def _extras(folder: Path) -> Iterator[Fact | Finding]:
    for name, needs in extras().items():
        lacking = [each for each in needs if _version(each) is None]
        installed = f"installed ({', '.join(needs)})"
        yield Fact(f"extra {name}", f"lacks {', '.join(lacking)}: {pip_line(name)}" if lacking else installed)


def extras() -> dict[str, list[str]]:
    """Return the packages that each extra of this distribution needs; nothing where it was not installed by pip."""
    found: dict[str, list[str]] = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        for text in importlib.metadata.requires(DISTRIBUTION) or ():
            extra, name = _EXTRA.search(text), _NAME.match(text)
            if extra and name and "-" not in extra[1]:  # names of earlier releases have a hyphen
                found.setdefault(extra[1], []).append(name[0])
    return dict(sorted(found.items()))


def _version(distribution: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


CHECKS: tuple[Check, ...] = (
    _versions,
    _compiled_parts,
    _threads,
    _blas,
    _gpu,
    _disk,
    _shared_memory,
    _ports,
    _limits,
    _clock,
    _rendering,
    _extras,
)
