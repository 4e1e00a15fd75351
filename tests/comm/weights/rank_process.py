"""Be a rank in a process of its own: python -m tests.comm.weights.rank_process ROLE PORT RANK.

ROLE is `worker`, `dies` (by SIGKILL, when half of the weights have come), `silent` (takes no word) or
`trainer` (pushes weights to rank 1). The store is a TCPStore at PORT; a
trainer with PORT 0 holds one, says its port and pushes nothing. All end with their standard input.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ding_like.comm import DistributedWeightUpdater, WeightUpdateWorker, update_worker
from ding_like.comm.channels import Weights

# So many that a transfer can be met half way: 100 MB, of which all are 1 or more.
NUMBERS = 25_000_000
TIMEOUT_S = 60.0


def state(value: float, *, numbers: int = NUMBERS) -> dict[str, torch.Tensor]:
    return {"w": torch.full((numbers,), value)}


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def die_when_half_has_come(body: torch.Tensor) -> None:
    """Kill this process as soon as the first numbers of a buffer have come and the last have not."""

    def watch() -> None:
        while not (body[0].item() or body[1].item() or body[2].item() or body[3].item()):
            pass
        last = body[-1].item()
        say("half" if not last else "all")
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


class HalfWay:
    """Stand-in for `torch` in the receiver's module: its empty buffers are zeros, and are watched."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        body = torch.zeros(nbytes, dtype=dtype)
        die_when_half_has_come(body)
        return body


def work(role: str, store: dist.Store, rank: int) -> None:
    def report(weights: Weights) -> None:
        numbers = weights.state["w"]
        say(f"got {numbers[0].item():g} {'whole' if numbers.eq(numbers[0]).all() else 'torn'}")

    if role == "dies":
        update_worker.torch = HalfWay()  # type: ignore[assignment]  # for this process, which ends by it
    worker = WeightUpdateWorker(store, rank, on_weights=report, timeout_s=TIMEOUT_S, idle_timeout_s=TIMEOUT_S)
    say("ready")
    if role == "silent":
        sys.stdin.read()
    else:
        worker.serve()


def main(role: str, port: int, rank: int) -> None:
    torch.set_num_threads(1)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(3)), daemon=True).start()
    is_holder = port == 0
    store = dist.TCPStore(
        "127.0.0.1", port, is_master=is_holder, wait_for_workers=False, timeout=timedelta(seconds=TIMEOUT_S)
    )
    if role == "trainer":
        updater = DistributedWeightUpdater(store, state(1.0), 1, True, timeout_s=TIMEOUT_S)
        say(str(store.port))
        if not is_holder:
            updater.push_weights()
        sys.stdin.read()
    else:
        work(role, store, rank)


if __name__ == "__main__":
    main(sys.argv[1], *(int(each) for each in sys.argv[2:]))
