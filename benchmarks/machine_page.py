"""Say on which machine the figures of a page were measured, by what their recordings say of it.

Between `<!-- machine: NAME NAME -->` and `<!-- end of machine -->` stands a sentence about these files of results/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks.provenance import RESULTS, ROOT

DOCS = ROOT / "docs"
_MARK = re.compile(r"<!-- machine: (?P<names>[\w* ]+) -->.*?<!-- end of machine -->", re.DOTALL)


def machine_of(names: Iterable[str], *, results: Path = RESULTS) -> str:
    """Return a sentence that says where and when recordings were made; a name may be a pattern."""
    paths = [path for name in names for path in sorted(results.glob(f"{name}.jsonl"))]
    lasts = [json.loads(path.read_text().splitlines()[-1]) for path in paths]
    if not lasts:
        return "Not recorded yet."
    machines = sorted({_machine(last) for last in lasts})
    dates = sorted({str(last["date"]) for last in lasts})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"Measured on {' and '.join(machines)}; {when}."


def _machine(circumstances: dict[str, object]) -> str:
    processor = str(circumstances.get("processor") or "") or "a processor that was not noted"
    gpu = f" and {circumstances['gpu']}" if "gpu" in circumstances else ""
    return f"{processor} with {circumstances['cpus']} cores{gpu}, {circumstances['system']}"


def fill(page: str, *, results: Path = RESULTS) -> str:
    """Return a page with its sentences about machines written afresh."""

    def written(found: re.Match[str]) -> str:
        names = found["names"]
        return f"<!-- machine: {names} -->\n{machine_of(names.split(), results=results)}\n<!-- end of machine -->"

    return _MARK.sub(written, page)


def pages() -> list[Path]:
    """Return the pages that have such marks."""
    return [path for path in sorted(DOCS.rglob("*.md")) if _MARK.search(path.read_text())]


def write() -> None:
    """Write the sentences of all pages."""
    for path in pages():
        path.write_text(fill(path.read_text()))
