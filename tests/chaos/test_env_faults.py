"""DQN on CartPole whose envs crash, hang and take their processes down, beside the same run without."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.provenance import provenance
from ding_like.config import compile_config, read_config
from ding_like.entry import serial_pipeline
from ding_like.envs import get_vec_env_setting
from tests.envs.faulty_env import make_unreliable

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
SEEDS = range(5)
# Chances per step, or per reset.
RATES = dict(raise_in_step=5e-4, raise_in_reset=5e-3, hang=1 / 5000, segfault=1 / 20_000)
# Kind -> (lane, calls of its env): each happens once whatever is drawn.
SCHEDULE = dict(raise_in_step=(0, 60), raise_in_reset=(1, 40), hang=(2, 90), segfault=(3, 120))
# A hung env is given up after a second.
OVERRIDES = ["create.env_manager.type=subprocess", "env.manager.step_timeout_s=1.0", "env.manager.reset_timeout_s=1.0"]
MAX_ENV_STEP = 40_000


def train(seed: int, *, faults: Path | None) -> dict[str, Any]:
    """Train until an evaluation reaches 475; `faults` is where the collector's envs note theirs, None for none.

    Evaluations are without faults: an episode of 500 steps would break off in a third of all cases, and sooner or
    later five times in a row, which is what ends a run.
    """
    main, create = read_config(CONFIG).main_config, read_config(CONFIG).create_config
    cfg = compile_config(main, create, seed=seed, save=False)
    _, collector, evaluator = get_vec_env_setting(cfg.env)
    if faults is not None:
        faults.mkdir()
        for lane, env in enumerate(collector):
            env.unreliable = dict(lane=lane, seed=seed, rates=RATES, schedule=SCHEDULE, folder=str(faults))
    name = f"seed{seed}_{'clean' if faults is None else 'faulty'}"
    started = time.perf_counter()
    serial_pipeline(
        str(CONFIG),
        seed=seed,
        env_setting=(make_unreliable, collector, evaluator),
        max_env_step=MAX_ENV_STEP,
        overrides=OVERRIDES,
        exp_name=name,
    )
    result = json.loads(Path(name, "result.json").read_text())
    return {
        "solved": result["stop"],
        "env_step": result["env_step"],
        "eval_value": result["eval_value"],
        "wall_s": round(time.perf_counter() - started, 1),
    }


def struck(faults: Path) -> tuple[Counter[str], set[str]]:
    """Return how often each kind of fault came, and which came by schedule."""
    rows = [json.loads(line) for path in faults.glob("*.jsonl") for line in path.read_text().splitlines()]
    return Counter(row["kind"] for row in rows), {row["kind"] for row in rows if row["scheduled"]}


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_faulty_envs_cost_at_most_half_as_many_steps_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = []
    for seed in SEEDS:
        clean = train(seed, faults=None)
        faulty = train(seed, faults=tmp_path / f"faults{seed}")
        counts, scheduled = struck(tmp_path / f"faults{seed}")
        pairs.append(
            dict(
                seed=seed,
                clean=clean,
                faulty=faulty,
                ratio=round(faulty["env_step"] / clean["env_step"], 3),
                faults=dict(counts),
                scheduled=sorted(scheduled),
            )
        )
    median_ratio = statistics.median(pair["ratio"] for pair in pairs)
    report = dict(**provenance(allow_dirty=True).to_plain(), rates=RATES, pairs=pairs, median_ratio=median_ratio)
    out = Path(os.environ.get("DING_CHAOS_REPORT", tmp_path / "env_faults.json"))
    out.write_text(json.dumps(report, indent=1) + "\n")

    assert all(pair["clean"]["solved"] and pair["faulty"]["solved"] for pair in pairs)
    assert all(pair["scheduled"] == sorted(SCHEDULE) for pair in pairs)
    assert report["median_ratio"] <= 1.5
