"""Send malformed messages to every bound socket of a run: `python -m tests.comm.zmq.hostile.test_fuzz [--minutes 5]`.

Writes docs/reports/seed_fuzz.json: what was sent, what became of it, and that the honest ones noticed nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.provenance import provenance
from ding_like.comm.keys import client_file, load_seed_keys, make_seed_keys, renew_clients
from tests.comm.zmq.hostile.stage import MAKERS, Stage, Strangers, memory_mib

REPORT = Path(__file__).parents[4] / "docs/reports/seed_fuzz.json"
_BURST = 200
_WARM_TURNS = 100  # after which memory is what a run needs


def fuzz(minutes: float, *, seed: int) -> dict[str, Any]:
    """Return figures. Raises AssertionError where an honest one is disturbed, or a part of the run ends."""
    stage = Stage()
    strangers = Strangers(stage.endpoints, seed=seed)
    began_s, before_mib, slowest_s = time.monotonic(), 0.0, 0.0
    try:
        while time.monotonic() - began_s < 60.0 * minutes or stage.turns <= _WARM_TURNS:
            strangers.send(_BURST)
            turn_s = time.monotonic()
            stage.check()
            slowest_s = max(slowest_s, time.monotonic() - turn_s)
            if stage.turns == _WARM_TURNS:
                before_mib = memory_mib()
        grown_mib = memory_mib() - before_mib
        return {
            "minutes": round((time.monotonic() - began_s) / 60.0, 2),
            "messages": strangers.counts.total(),
            "by_kind": dict(sorted(strangers.counts.items())),
            "by_socket": dict(sorted(strangers.num_by_target.items())),
            "honest_turns": stage.turns,
            "slowest_honest_turn_s": round(slowest_s, 3),
            "memory_grown_mib": round(grown_mib, 1),
            "rows": {**stage.rows.counts, "honest": 3 * stage.turns, "others": stage.others.total()},
            "weights": {"garbled": stage.weights.num_garbled},
            "server": stage.rows.sources()["server1"].stats,
        }  # fmt: skip
    finally:
        strangers.close()
        stage.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-report", action="store_true", help="print the figures only")
    options = parser.parse_args()
    figures = fuzz(options.minutes, seed=options.seed)
    print(json.dumps(figures, indent=1))
    if not options.no_report:
        code = provenance(allow_dirty=True)
        plain = {**code.to_plain(), "setting": {"seed": options.seed}, "figures": figures}
        REPORT.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())


def state_of(stage: Stage) -> object:
    """Return what a message of any sender might change."""
    rows = stage.rows
    return (
        {name: state.run_id for name, state in rows.sources().items()},
        (rows.counts["garbled"], rows.counts["refused"], rows.counts["rows"] - 3 * stage.turns),
        stage.weights.num_garbled,
    )


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def test_malformed_messages_disturb_nobody(stage: Stage) -> None:
    strangers = Strangers(stage.endpoints, seed=0)
    try:
        for _ in range(4):
            strangers.send(40)
            stage.check()
    finally:
        strangers.close()

    assert set(strangers.counts) >= {*MAKERS, "replays", "no ZeroMQ"}
    assert stage.rows.counts["garbled"] > 10 and stage.weights.num_garbled > 10


def test_where_there_are_keys_nothing_of_a_stranger_is_read(tmp_path: Path) -> None:
    make_seed_keys(tmp_path / "keys.json", ["one"])
    old = load_seed_keys(client_file(tmp_path / "keys.json", "one"))
    renew_clients(tmp_path / "keys.json", ["one"])
    stage = Stage(load_seed_keys(tmp_path / "keys.json"))
    strangers = Strangers(stage.endpoints, seed=1, keys=old, wait_s=0.0)
    try:
        before = state_of(stage)
        for _ in range(2):
            strangers.send(40)
            stage.check()
        assert state_of(stage) == before
    finally:
        strangers.close()
        stage.close()
