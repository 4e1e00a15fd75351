"""Make what docs/imitation.md says of measurements: methods that imitate an expert beside the package `imitation`."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.ray_page import NOT_YET, ROOT, Found, fill, load

PAGE = ROOT / "docs" / "imitation.md"
METHODS = {"bc": "BC", "gail": "GAIL, with PPO", "airl": "AIRL, with PPO", "sqil": "SQIL"}


def table(results: Mapping[str, Found | None]) -> str:
    """Return mean and lowest returns and processor time of both packages, as a table in Markdown."""
    lines = [
        "| method | ours: mean, lowest return | `imitation`: mean, lowest | CPU seconds a seed, ours | its | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for method, what in METHODS.items():
        if (found := results[method]) is not None:
            cells = [
                ", ".join(f"{found[who, metric]['value']:.1f}" for metric in ("return", "lowest"))
                for who in ("ours", "imitation")
            ]
            seconds = [1 / found[who, "training"]["value"] for who in ("ours", "imitation")]
            ratio = found["ours / imitation", "training"]["value"]
            lines.append(f"| {what} | {cells[0]} | {cells[1]} | {seconds[0]:.1f} | {seconds[1]:.1f} | {ratio:.2f} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def write() -> None:
    """Write the measured part of the page."""
    results = {method: load(f"imitate_{method}") for method in METHODS}
    PAGE.write_text(fill(PAGE.read_text(), {"imitation": table(results)}))
