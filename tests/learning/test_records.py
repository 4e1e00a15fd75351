"""What was recorded of the learning gates reaches their bars, and the index of the algorithms' pages shows it."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.pages import bar_of, index_row
from tests.learning.test_gates import DISTRIBUTED, ENVS, MOST, serial_of

DOCS = Path(__file__).parents[2] / "docs"
# An ablation's variants are on its page alone.
RECORDS = {
    path.stem: json.loads(path.read_text())
    for path in sorted((DOCS / "learning").glob("*.json"))
    if not path.stem.endswith("_ablation")
}


def test_the_index_shows_every_record() -> None:
    index = (DOCS / "algorithms/README.md").read_text()

    assert len(RECORDS) > 30 and [name for name, found in RECORDS.items() if index_row(found) not in index] == []


def test_records_of_env_gates_and_distributed_modes_reach_their_bars() -> None:
    wrong, recorded = [], [name for name in DISTRIBUTED if name in RECORDS]
    for name in [*ENVS, "lunarlander_cont_sac", "bipedalwalker_sac", "cartpole_hidden_r2d2_seed", *recorded]:
        found = RECORDS[name]
        if found["median_eval_value"] < bar_of(name):
            wrong.append(f"{name}: {found['median_eval_value']}, below {bar_of(name)}")
        if name in ENVS and found["most_env_steps"] > 1.01 * ENVS[name][2]:  # a batch is not cut short
            wrong.append(f"{name}: {found['most_env_steps']} env steps")
        if name in DISTRIBUTED and found["overrides"] != serial_of(name)["overrides"]:
            wrong.append(f"{name}: other overrides than serial")
        if name in ("cartpole_rainbow_seed", *(each for each in recorded if each.endswith("_ray"))):
            most = MOST * serial_of(name)["median_env_step"]
            wrong += [f"{name}: {found['median_env_step']} env steps"] * (found["median_env_step"] > most)

    assert len(recorded) >= 5 and wrong == []
