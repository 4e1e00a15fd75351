"""Docstrings, comments and signatures follow the style guide: noun phrases, named actors, exact types."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.lines import PHRASES, public_functions, wording_faults

ROOT = Path(__file__).parents[2]
# The list of banned phrases itself.
LIST = ROOT / "tests" / "architecture" / "lines.py"


def test_docstrings_and_comments_name_their_actors() -> None:
    files = [
        path
        for folder in ("ding_like", "dizoo", "benchmarks", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]

    faults = [
        f"{path.relative_to(ROOT)}:{line} {message}"
        for path in files
        if path != LIST
        for line, message in wording_faults(path.read_text("utf-8"))
    ]

    assert not faults, "\n" + "\n".join(faults)


def test_pages_name_their_actors() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    texts = {page.relative_to(ROOT): page.read_text("utf-8") for page in pages if page.name != "CHANGELOG.md"}

    faults = [f"{page}: {found[0]!r}" for page, text in sorted(texts.items()) for found in PHRASES.finditer(text)]

    assert not faults, "\n" + "\n".join(faults)


def test_few_public_functions_take_or_return_anything() -> None:
    counts = [public_functions(path.read_text("utf-8")) for path in (ROOT / "ding_like").rglob("*.py")]
    public, with_any = (sum(count[place] for count in counts) for place in (0, 1))

    assert with_any < 0.08 * public, f"{with_any} of {public} public functions have Any in their signature"
