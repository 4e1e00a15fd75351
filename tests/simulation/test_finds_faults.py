"""The simulation finds a fault whose fix is taken out, and nothing where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.breaks import broken
from tests.simulation.scheduler import SimulationFailure
from tests.simulation.simulation import simulate

_SEEDS = range(500, 512)
_CASES = {
    # Where the learner is asked for its last weights before they are found old, it cannot publish them either.
    "1": (("stale_weights", "process_exit"), dict(faults=("pause_learner",), kind="off_policy", operations=1200)),
    "3": (("updates_lost",), dict(faults=("rough_network", "kill_at_commit"), operations=1500)),
    "8": (("off_policy_rows",), dict(faults=("kill_learner",), kind="on_policy", operations=800)),
}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", sorted(_CASES))
def test_a_fault_is_found_once_its_fix_is_taken_out(fault: str) -> None:
    kinds, settings = _CASES[fault]
    seed, failure = _first_failure(fault, settings)

    assert failure.kind in kinds, str(failure)
    simulate(seed, **settings)  # with the fix it does not fail


def _first_failure(fault: str, settings: dict[str, Any]) -> tuple[int, SimulationFailure]:
    for seed in _SEEDS:
        try:
            with broken(fault):
                simulate(seed, **settings)
        except SimulationFailure as failure:
            return seed, failure
    raise AssertionError(f"fault {fault} was not found with seeds {_SEEDS}")
