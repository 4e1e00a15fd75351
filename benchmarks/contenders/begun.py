"""Time at which a contender began, and the fork server that the command would start by then; to be imported first."""

from __future__ import annotations

import sys
import time

from ding_like.utils import fork_server

STARTED_S = time.perf_counter()  # imports are part of a whole run
if "parallel" in sys.argv:
    fork_server.ForkServer.begin(*fork_server.WORKERS)  # as `ding -m parallel` does
