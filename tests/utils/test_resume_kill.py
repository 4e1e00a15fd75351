"""Kill a process while it saves: what is there always loads. This is about the death of a process, not of the power."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# One process imports torch once and forks a child per kill: the children only save.
SCRIPT = """
import os, random, select, signal, sys
import numpy as np
import torch
from ding_like.utils.checkpoint import ResumeStore

torch.set_num_threads(1)
folder, kills = sys.argv[1], int(sys.argv[2])
rng = random.Random(0)
store = ResumeStore(folder, durable=False)
store.save(0, {"policy": {"weight": np.full(1000, 0)}}, {})
unfinished = 0
for kill in range(kills):
    before = store.load_newest().step
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready)
        os.write(done, b"x")
        step = before
        while True:
            step += 1
            store.save(step, {"policy": {"weight": np.full(100_000, step)}, "buffer": {"x": np.full(50_000, step)}}, {})
    os.close(done)
    os.read(ready, 1)
    select.select([ready], [], [], rng.uniform(0.0, 0.02))  # the child never writes again: a deadline, no look
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready)
    unfinished += any(name.endswith((".tmp", ".old")) for name in os.listdir(folder))
    saved = store.load_newest()
    assert saved.step >= before, (saved.step, before)
    weight = saved.parts["policy"]["weight"]
    assert (weight == saved.step).all(), "parts of two points were mixed"
print("kills", kills, "in the middle of a save", unfinished)
"""


def run(folder: Path, kills: int) -> int:
    """Return how many of the kills came in the middle of a save."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), str(kills)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_three_hundred_kills_while_saving_never_lose_the_newest_point(tmp_path):
    assert run(tmp_path / "resume", 300) > 50
