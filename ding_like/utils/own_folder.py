"""Make temporary folders that say whose they are, so that those of processes that were killed can be swept."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)


def make_own_folder(prefix: str, *, where: str | os.PathLike[str] | None = None) -> Path:
    """Return a new folder `{prefix}{machine}-{pid}-{start}-{random}` below `where`, by default the temporary folder.

    Folders of the same prefix whose process has ended without deleting them are deleted first. Whose a folder is stands
    in its name from the beginning, so that it is never taken for a dead process's. The name is short, with numbers to
    the base 16: a socket's whole path may have 107 characters.
    """
    base = Path(where or tempfile.gettempdir())
    sweep(prefix, base)
    own = f"{prefix}{machine_mark()}-{os.getpid():x}-{start_of(os.getpid()):x}-"
    return Path(tempfile.mkdtemp(prefix=own, dir=base))


def sweep(prefix: str, base: Path) -> list[Path]:
    """Delete this user's folders of dead processes of this machine; return them.

    A process lives if one with its id and its start time does. Folders of other users, machines and containers, and
    those whose process cannot be looked up, stay.
    """
    name = re.compile(re.escape(prefix) + re.escape(machine_mark()) + r"-([0-9a-f]{1,8})-([0-9a-f]{1,16})-\w+")
    swept = []
    for path in base.glob(f"{prefix}*"):
        owner = name.fullmatch(path.name)
        try:
            if owner is None or path.is_symlink() or path.lstat().st_uid != os.getuid():
                continue
        except FileNotFoundError:  # another start swept it meanwhile
            continue
        if owner[2] != "0" and start_of(int(owner[1], 16)) != int(owner[2], 16):
            logger.info("%s is left by process %s, which has ended: it is deleted", path, int(owner[1], 16))
            shutil.rmtree(path, ignore_errors=True)
            swept.append(path)
    return swept


def start_of(pid: int) -> int:
    """Return when a process was started, in clock ticks since the machine was; 0 where there is none, or no /proc."""
    fields = _fields_of(pid)
    return int(fields[19]) if fields else 0


def state_of(pid: int) -> str:
    """Return the letter of a process's state, "T" of one that is paused; "" where there is none, or no /proc."""
    fields = _fields_of(pid)
    return fields[0] if fields else ""


def _fields_of(pid: int) -> list[str]:
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return []
    # The name of the program, in brackets, may hold anything: fields are counted behind it.
    return stat.rpartition(")")[2].split()


def machine_mark() -> str:
    """Return a mark of this boot of this machine and of whose process ids are seen here: containers have their own."""
    try:
        seen = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:
        seen = ""
    return hashlib.sha256(f"{socket.gethostname()} {seen}".encode()).hexdigest()[:8]
