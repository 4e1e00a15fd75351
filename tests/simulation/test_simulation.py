"""A parallel run with faults everywhere violates no invariant, and each seed replays the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.scheduler import SimulationFailure
from tests.simulation.simulation import simulate

_ROOT = Path(__file__).parents[2]
_OPERATIONS = 5_000  # a part
_PARTS = [*range(4), *(pytest.param(part, marks=pytest.mark.slow) for part in range(4, 20))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", _PARTS)
def test_no_invariant_is_violated(part: int) -> None:
    done, seed = 0, 1000 * part
    while done < _OPERATIONS:
        try:
            done += simulate(seed, operations=1500).operations
        except SimulationFailure as failure:
            again = f"python -m tests.simulation --seed {seed} --seeds 1 --each 1500"
            pytest.fail(f"{failure}\nsee it again: {again}")
        seed += 1


@pytest.mark.timeout(120)
def test_a_seed_plays_the_same_run_again_in_any_process() -> None:
    here = simulate(7, operations=300)
    code = (
        "from tests.simulation.simulation import simulate; r = simulate(7, operations=300); "
        "print(r.trace_hash, r.operations)"
    )
    # Hashes of texts differ from process to process, and with them the order of sets.
    env = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(_ROOT)}
    there = subprocess.run([sys.executable, "-c", code], cwd=_ROOT, env=env, capture_output=True, text=True, check=True)

    assert there.stdout.split() == [str(here.trace_hash), str(here.operations)]
    assert simulate(8, operations=300).trace_hash != here.trace_hash
