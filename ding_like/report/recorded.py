"""Recorded results of the shipped configs: what each returned, and what that cost.

`recorded.json` beside this file is made of docs/learning and docs/results by `python -m benchmarks.pages`: a wheel
holds no docs.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ding_like.report.scores import clock, measure
from ding_like.types import Config

FILE = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True)
class Recorded:
    """Runs of one config with several seeds: fresh evaluations of the last models, and medians of what they took."""

    name: str
    config: str  # name of the shipped config: "cartpole_dqn"
    mode: str
    overrides: tuple[str, ...]
    seeds: int
    median: float
    lowest: float
    highest: float
    env_step: int
    train_iter: int
    wall_s: float

    @property
    def score(self) -> str:
        """Return of the seeds in words."""
        if self.seeds == 1:
            return f"{measure(self.median)} (1 seed)"
        return f"{measure(self.median)} [{measure(self.lowest)}, {measure(self.highest)}]"

    @property
    def cost(self) -> str:
        """Steps and time of a run in words."""
        taken = f"{self.env_step:,} env steps" if self.env_step else f"{self.train_iter:,} updates"
        return f"{taken}, {clock(self.wall_s)}"


def summarise(name: str, record: Mapping[str, Any]) -> Recorded | None:
    """Return the summary of a record of docs; None for one that is no plain run of a shipped config."""
    runs = record.get("runs")
    # Ablations have variants; what a test's own class changes is none of the config's results.
    if not runs or "config" not in record or "tests." in "".join(record.get("overrides", ())):
        return None
    values = [float(run["eval_value"]) for run in runs]
    return Recorded(
        name=name,
        config=record["config"].removesuffix("_config.py"),
        mode=record["mode"],
        overrides=tuple(record.get("overrides", ())),
        seeds=len(runs),
        median=statistics.median(values),
        lowest=min(values),
        highest=max(values),
        env_step=int(statistics.median(run["env_step"] for run in runs)),
        train_iter=int(statistics.median(run["train_iter"] for run in runs)),
        wall_s=float(statistics.median(run["wall_s"] for run in runs)),
    )


def summaries(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of `recorded.json` for the records of docs, by name."""
    found = (summarise(name, record) for name, record in sorted(records.items()))
    return json.dumps([asdict(each) for each in found if each is not None], indent=1) + "\n"


def read_recorded() -> dict[str, list[Recorded]]:
    """Return the recorded runs by config, those of the plain config first."""
    rows: list[Config] = json.loads(FILE.read_text(encoding="utf-8"))
    by_config: dict[str, list[Recorded]] = {}
    for row in sorted(rows, key=lambda row: (len(row["overrides"]), -row["seeds"])):
        by_config.setdefault(row["config"], []).append(Recorded(**{**row, "overrides": tuple(row["overrides"])}))
    return by_config
