"""The index of the algorithms' pages says what was recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.pages import index_row

ROOT = Path(__file__).parents[2]
# An ablation's variants are on its page alone.
RECORDS = [path for path in sorted((ROOT / "docs/learning").glob("*.json")) if not path.stem.endswith("_ablation")]
INDEX = (ROOT / "docs/algorithms/README.md").read_text()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_row_of_the_index_holds_what_the_file_holds(path: Path) -> None:
    row = index_row(json.loads(path.read_text()))

    assert row in INDEX


def test_every_page_is_in_the_index_and_every_link_leads_to_one() -> None:
    pages = {path.name for path in (ROOT / "docs/algorithms").glob("*.md")} - {"README.md"}

    assert set(re.findall(r"\]\((\w+\.md)\)", INDEX)) == pages
