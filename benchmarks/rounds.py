"""Run contenders in turn, A B C A B C ..., and make medians and ratios of what they print."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.provenance import Provenance, provenance
from benchmarks.table import Benchmark, Contender, Given

ROOT = Path(__file__).parents[1]
# Who sets one of these chooses how fast the maths libraries are: figures with and without do not compare.
_MATHS_SETTINGS = ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES")

Row = dict[str, Any]  # one line of a result file
THIS_RUN = "this run"  # where a figure comes from, in every row


class ContenderError(Exception):
    """A contender failed, or printed no measurement."""


class Series(NamedTuple):
    """Metric of one contender, a value for each round."""

    name: str
    metric: str
    unit: str
    values: list[float]


class Measured(NamedTuple):
    """Output of all rounds of one benchmark."""

    series: list[Series]
    versions: dict[str, Mapping[str, str]]  # by contender
    errors: dict[str, str]  # by contender; one that fails is left out from then on


def measure(
    contenders: Mapping[str, Contender], *, rounds: int, timeout_s: float, extra: Sequence[str] = ()
) -> Measured:
    """Run every contender once a round and print what it measured; `extra` are further arguments for each of them."""
    found: dict[tuple[str, str], Series] = {}
    measured = Measured([], {}, {})
    for number in range(rounds):
        for name, contender in contenders.items():
            if name in measured.errors:
                continue
            try:
                rows = run_once(contender, timeout_s=timeout_s, extra=extra, number=number)
            except (ContenderError, subprocess.TimeoutExpired) as error:
                measured.errors[name] = str(error)
                continue
            shown = (f"{row['metric']} {row['value']:,} {row['unit']}".rstrip() for row in rows if "metric" in row)
            print(f"round {number + 1} of {rounds}, {name}: {', '.join(shown)}", file=sys.stderr)
            for row in rows:
                if "versions" in row:
                    measured.versions[name] = row["versions"]
                else:
                    key = name, row["metric"]
                    found.setdefault(key, Series(name, row["metric"], row["unit"], [])).values.append(row["value"])
    measured.series.extend(one for one in found.values() if one.name not in measured.errors)
    return measured


def run_once(contender: Contender, *, timeout_s: float, extra: Sequence[str] = (), number: int = 0) -> list[Row]:
    """Run one contender in a process and a folder of its own and return its JSON lines.

    `number` is that of the round, from which a contender that learns takes its random seed (BENCH_ROUND).
    Raises ContenderError if it fails or measures nothing, subprocess.TimeoutExpired if it takes too long.
    """
    done = _run(contender, timeout_s=timeout_s, extra=extra, number=number)
    rows: list[Row] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not any("metric" in row for row in rows):
        raise ContenderError(f"{contender.script} printed no measurement:\n{(done.stderr or done.stdout)[-2000:]}")
    return rows


def profile(contender: Contender, *, timeout_s: float, extra: Sequence[str] = ()) -> str:
    """Return the profile that a contender of ours prints."""
    done = _run(contender, timeout_s=timeout_s, extra=[*extra, "--profile"])
    if done.returncode:
        raise ContenderError(f"{contender.script} failed:\n{done.stderr[-2000:]}")
    # Where a package lies says nothing, and the name of someone's home does not belong in a report.
    return done.stdout.replace(f"{ROOT}{os.sep}", "")


def _run(
    contender: Contender, *, timeout_s: float, extra: Sequence[str], number: int = 0
) -> subprocess.CompletedProcess[str]:
    module = f"benchmarks.contenders.{contender.script}"
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [str(contender.python), "-m", module, *contender.args, *extra],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=folder,
            env={
                **environment_of(ROOT),
                "BENCH_ROUND": str(number),
                **({"BENCH_GPU": "1"} if contender.sees_gpu else {}),
            },
        )


def environment_of(tree: Path) -> dict[str, str]:
    """Return the environment of a contender of the package at a path.

    It has nothing but this tree: a peer must not see the packages of another environment.
    """
    return {**os.environ, "PYTHONPATH": str(tree), "DING_LIKE_QUIET": "1"}


def summarise(benchmark: Benchmark, measured: Measured, *, is_short: bool = False) -> list[Row]:
    """Return one row per metric and contender (median, lo, hi, n), then the ratios of ours to each peer.

    A ratio is the median over rounds of the two that ran in the same round. `from` says where a figure comes from:
    this run, or elsewhere, with the page that tells of it. No ratio has one figure from here and one from elsewhere.
    A ratio with a bar says what it must be at least, and whether it is: None in a short run, which is not judged.
    """
    rows = [row_of(one) for one in measured.series]
    for metric in benchmark.metrics:
        rates = {one.name: one.values for one in measured.series if one.metric == metric}
        ours = [name for name in rates if benchmark.contenders[name].is_ours]
        peers = [name for name in rates if name not in ours or name == benchmark.baseline]
        rows += [ratio(metric, mine, peer, rates) for mine in ours for peer in peers if mine != benchmark.baseline]
    bars = {(f"{bar.ours} / {bar.against}", bar.metric or benchmark.metrics[0]): bar for bar in benchmark.bars}
    for row in rows:
        if (bar := bars.get((row["name"], row["metric"]))) is not None:
            row.update(bar=bar.limit, is_met=None if is_short else bar.is_met(row["value"]))
            if bar.at_most is not None:
                row["bar_is"] = "at most"
    return rows + [_given_row(one) for one in benchmark.given]


def ratio(metric: str, ours: str, peer: str, rates: Mapping[str, list[float]]) -> Row:
    """Return ours / peer, the median over the rounds of one metric, whose values `rates` holds by contender."""
    ratios = [round(mine / theirs, 3) for mine, theirs in zip(rates[ours], rates[peer], strict=True)]
    return _row(f"{ours} / {peer}", metric, "ratio", ratios)


def row_of(one: Series) -> Row:
    """Return the row of one metric of a contender: median, lo, hi, n."""
    return _row(*one)


def _row(name: str, metric: str, unit: str, values: list[float]) -> Row:
    return {
        "name": name,
        "metric": metric,
        "value": round(statistics.median(values), 3),
        "unit": unit,
        "n": len(values),
        "lo": min(values),
        "hi": max(values),
        "from": THIS_RUN,
    }


def _given_row(given: Given) -> Row:
    return {
        "name": given.name,
        "metric": given.metric,
        "value": given.value,
        "unit": "ratio",
        "from": f"elsewhere: {given.source}; {given.page}",
    }


def circumstances(measured: Measured, code: Provenance | None = None, *, gpu: str | None = None) -> Row:
    """Return what the figures depend on: machine, date, commit, versions.

    `code` is the tree before the run; `gpu` is the name of one that was used.
    """
    code = provenance(allow_dirty=True) if code is None else code
    return {
        "name": "circumstances",
        "date": time.strftime("%Y-%m-%d"),
        **code.to_plain(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cpus": os.cpu_count(),
        **({"gpu": gpu} if gpu else {}),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "maths_settings": {name: os.environ[name] for name in _MATHS_SETTINGS if name in os.environ},
        "versions": measured.versions,
    }


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
