"""Make what docs/parallel.md says of its speed: beside one process, and how it grows with workers."""

from __future__ import annotations

import json
import shutil
from typing import Any

from benchmarks.ray_page import NOT_YET, RESULTS, ROOT, SERIAL, fill, load

PAGE = ROOT / "docs" / "parallel.md"
_CONTENDERS = {"ours": "`-m parallel`", "ours_ray": "`-m ray`", "sb3_subproc": "SB3, `SubprocVecEnv`", "rllib": "RLlib"}


def serial_table() -> str:
    """Return mode parallel beside serial, each ratio with its bound and its bar, as a table in Markdown."""
    lines = [
        "| env | parallel, env steps/s | serial, env steps/s | ratio | bound | ratio / bound | bar of the ratio "
        "| ratio of whole runs | start-up, parallel and serial, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for benchmark, what in SERIAL.items():
        if (found := load(benchmark)) is None:
            continue
        ratio, whole = (found["ours / ours_serial", metric] for metric in ("env_steps_wall", "whole_runs"))
        verdict = f"{ratio['bar']:g}: {'met' if ratio['is_met'] else 'missed'}" if "bar" in ratio else ""
        rates = " | ".join(f"{found[name, 'env_steps_wall']['value']:,.0f}" for name in ("ours", "ours_serial"))
        told = f"{ratio['value']:.2f} ({ratio['lo']:.2f} to {ratio['hi']:.2f})"
        startup = ", ".join(f"{found[name, 'startup']['value']:.1f}" for name in ("ours", "ours_serial"))
        bound = found["ours_serial", "bound"]["value"]
        lines.append(
            f"| {what} | {rates} | {told} | {bound:.2f} | {ratio['value'] / bound:.2f} | {verdict} "
            f"| {whole['value']:.2f} | {startup} |"
        )
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def scaling_table() -> str:
    """Return the rates of workers whose envs sleep, and their shares of linear growth, as a table in Markdown."""
    path = RESULTS / "scaling.jsonl"
    if not path.exists():
        return NOT_YET
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        if "metric" in row:
            rows[row["name"], row["metric"]] = row
    metrics = list(dict.fromkeys(metric for _, metric in rows))
    heads = [f"{int(each.removeprefix('asleep_').removesuffix('us')) / 1000:g} ms" for each in metrics]
    head = "env steps/s with 1, 4, 8 workers; share of linear with 8"
    lines = [f"| {head} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, what in _CONTENDERS.items():
        if (f"{name}_x1", metrics[0]) not in rows:  # a peer that was left out
            continue
        cells = []
        for metric in metrics:
            line = [rows[f"{name}_x{workers}", metric] for workers in (1, 4, 8)]
            cells.append(f"{', '.join(format(row['value'], ',.0f') for row in line)}; {line[-1]['of_linear']:.2f}")
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "![env steps a second over workers](scaling.png)"])


def write() -> None:
    """Write the measured parts of the page, and bring its picture."""
    if (RESULTS / "scaling.png").exists():
        shutil.copy(RESULTS / "scaling.png", PAGE.with_name("scaling.png"))
    PAGE.write_text(fill(PAGE.read_text(), {"parallel_serial": serial_table(), "parallel_scaling": scaling_table()}))
