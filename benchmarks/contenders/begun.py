"""When this contender began, before the package was imported, and what the command begins then; imported first."""

from __future__ import annotations

import sys
import time

from ding_like.utils import fork_server

STARTED_S = time.perf_counter()  # imports are part of a whole run
if "parallel" in sys.argv:
    fork_server.ForkServer.begin(*fork_server.WORKERS)  # as `ding -m parallel` does
