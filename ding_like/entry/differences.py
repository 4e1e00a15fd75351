"""`ding diff`: in which keys, versions and results two experiments or configs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from ding_like.config.tree import leaves, literal
from ding_like.entry.modes import echo, sub_command
from ding_like.types import Config

_EXAMPLES = """\b
Examples:
  ding diff my_exp other_exp
  ding diff my_exp my_config.py
  ding diff my_exp other_exp --json
"""
_RESULTS = (
    "eval_value",
    "best_eval",
    "stop",
    "env_step",
    "train_iter",
    "duration_s",
    "mode",
    "command",
    "host",
    "commit",
)
_MISSING = "-"


class Described(NamedTuple):
    """Experiment or config as it is compared: texts by key, in three tables."""

    keys: Mapping[str, str]
    versions: Mapping[str, str]
    results: Mapping[str, str]


class Difference(NamedTuple):
    """Key with its two texts, "-" where there is none."""

    key: str
    first: str
    second: str


@sub_command("diff", epilog=_EXAMPLES)
@click.argument("first", metavar="EXP")
@click.argument("second", metavar="EXP")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def diff_command(first: str, second: str, as_json: bool) -> None:
    """Show in which keys of their configs, versions and results two experiments differ.

    EXP is the folder of a run or of several seeds, of which the first is taken, or a config file (.py), which is
    completed by the defaults. `ding compare` has the statistics over seeds, `ding plot` the curves.
    """
    tables = diff(first, second)
    if as_json:
        echo(json.dumps({name: [each._asdict() for each in rows] for name, rows in tables.items()}, indent=2))
        return
    from ding_like.report.compare import aligned

    for name, rows in tables.items():
        cells = [(f"  {row.key}", row.first, row.second) for row in rows]
        echo("\n".join(aligned([(name, first, second), *cells])) if rows else f"{name}: no difference")


def diff(first: str | Path, second: str | Path) -> dict[str, list[Difference]]:
    """Return the differences of two experiments or configs: keys, versions, results.

    Raises ConfigError for what is neither the folder of a run nor a config file.
    """
    one, other = describe(Path(first)), describe(Path(second))
    return {name: _differences(mine, theirs) for name, mine, theirs in zip(Described._fields, one, other, strict=True)}


def describe(path: Path) -> Described:
    """Return what an experiment's folder or a config file holds, as texts by key."""
    from ding_like.report.experiment import check_experiment, read_plan, read_result, read_settings, seed_folder

    if path.suffix == ".py":
        return Described(_texts(_compiled(path)), {}, {})
    plan = read_plan(path)
    folder = path if plan is None else seed_folder(path, plan.seeds[0])
    check_experiment(folder)
    result = read_result(folder)
    results = {name: _text(result[name]) for name in _RESULTS if result.get(name) is not None}
    return Described(_texts(read_settings(folder)), dict(result.get("versions", {})), results)


def _compiled(path: Path) -> Config:
    from ding_like.entry.training import load_config

    return load_config(str(path), seed=None, save=False, renew_dir=False, quiet=True)


def _texts(config: Config) -> dict[str, str]:
    """Return the values of a config by key; the name of its folder is none of its settings."""
    return {key: literal(value) for key, value in leaves(config) if key != "exp_name"}


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    """Return the keys whose texts differ; of a table that one lacks wholly there is nothing to compare."""
    if not first or not second:
        return []
    keys = dict.fromkeys([*first, *second])
    rows = (Difference(key, first.get(key, _MISSING), second.get(key, _MISSING)) for key in keys)
    return [row for row in rows if row.first != row.second]
