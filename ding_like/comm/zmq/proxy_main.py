"""Be the process of an inference proxy: `start_proxy` starts it, `main` is what it runs.

It loads no torch, so that another is there within half a second where one was killed. Its settings, the path of the
keys among them, come as a line of JSON by its standard input, which also tells it that its parent has ended.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from ding_like.comm.zmq.proxy import Proxy
from ding_like.errors import DingError
from ding_like.utils.parent import start_child

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

COUNTS = b"counts\n"  # asks for a line of JSON with what `Proxy.counts` returns
# Isolated: nothing in the folder that the run was started in takes the place of a module.
_BOOT = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import main; main()"


def start_proxy(
    settings: Mapping[str, Any],  # Any: of JSON
    *,
    keys: SeedKeys | None,
    alive: int,
    log: IO[bytes] | None,
) -> subprocess.Popen[bytes]:
    """Start a proxy with these settings of `Proxy`; the process answers on its standard output.

    First comes a line of JSON with its two endpoints, or with an "error". It holds the descriptor `alive` open until
    it has ended, and writes warnings to `log`, by default where this process does.
    """
    process = start_child(
        [sys.executable, "-I", "-c", _BOOT, json.dumps([each for each in sys.path if each])],
        stdout=subprocess.PIPE,
        stderr=log,
        pass_fds=(alive,),
        start_new_session=True,  # Ctrl-C in the terminal is for the parent, which ends this
    )
    key_file = None if keys is None else str(keys.path.absolute())
    line = json.dumps({**settings, "key_file": key_file, "parent": os.getpid()})
    assert process.stdin is not None
    with suppress(OSError):  # it has ended already: it says nothing, which is found out there
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
    return process


def main() -> None:
    """Run a proxy until the parent closes the standard input or ends, or until SIGTERM."""
    logging.basicConfig(format="inference proxy: %(message)s", level=logging.WARNING)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = json.loads(sys.stdin.buffer.readline())
    parent, key_file = settings.pop("parent"), settings.pop("key_file")
    try:
        proxy = Proxy(**settings, keys=_load(key_file))
        proxy.bind()
    except DingError as error:
        _say({"error": str(error)})
        sys.exit(1)
    _say({"clients": proxy.client_endpoint, "servers": proxy.server_endpoint})
    threading.Thread(target=_follow, args=(parent, proxy, stop), name="parent", daemon=True).start()
    proxy.serve(stop)


def _load(key_file: str | None) -> SeedKeys | None:
    if key_file is None:
        return None
    from ding_like.comm.zmq.keys import load_seed_keys

    return load_seed_keys(key_file)


def _follow(parent: int, proxy: Proxy, stop: threading.Event) -> None:
    """Answer the parent until it has ended or closes the pipe, then set `stop`."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    with suppress(AttributeError, OSError):  # only Linux can; elsewhere the pipe alone tells
        # Processes that the parent has forked may hold the other end of the pipe, and live on.
        poll.register(os.pidfd_open(parent), select.POLLIN)
    # Without a deadline: what it waits for is the end.
    while os.getppid() == parent:
        if any(descriptor != 0 for descriptor, _ in poll.poll()):
            break
        asked = os.read(0, 4096)
        if not asked:
            break
        for _ in range(asked.count(COUNTS)):
            _say(proxy.counts._asdict())
    stop.set()


def _say(message: Mapping[str, Any]) -> None:  # Any: of JSON
    with suppress(OSError):  # the parent has ended
        os.write(1, json.dumps(message).encode() + b"\n")
