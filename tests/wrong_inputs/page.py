"""Write docs/wrong_inputs.md from the table: what was typed, the answer as printed, the fix."""

from __future__ import annotations

import re
from pathlib import Path

from tests.wrong_inputs.cases import MY_CONFIG, Case
from tests.wrong_inputs.judge import train, try_case
from tests.wrong_inputs.table import CASES, SECTIONS

PAGE = Path(__file__).parents[2] / "docs/wrong_inputs.md"

_HEAD = """\
# Wrong inputs, and what they are answered

{count} mistakes of new users, as they are typed, with the answer and the fix. A test types all of them: each is
answered with one message, leaves no folder behind, and works with the fix (`tests/wrong_inputs`; the page is written
by `python -m tests.wrong_inputs --write`).

The commands run in a folder with this `my_config.py`, to which lines may be added:

```text
{config}```

Exit status: 1, or 2 where the command line itself cannot be read. `--debug` shows the traceback.
"""


def entry(case: Case, answer: str) -> str:
    """Return what the page says of a case."""
    wrong = _typed(case.typed, case.config)
    right = _typed(case.fix, case.config if case.fixed_config is None else case.fixed_config)
    fix = f"\nFix:\n\n```text\n{right.rstrip()}\n```\n" if right != wrong else _fixed_files(case)
    return f"### {case.name}\n\n```text\n{wrong}```\n\n```text\n{answer}```\n{fix}"


def normal(text: str, folder: Path) -> str:
    """Return an answer without what differs from run to run: folders, times, ports."""
    for name in (folder, folder.resolve()):
        text = text.replace(f"{name}/", "").replace(str(name), "FOLDER")
    text = text.replace(f", {PAGE.parents[1]}", "")  # where python looks, beside the folder
    text = re.sub(r"(?:\.\./)+\S*?/(dizoo/)", r"\1", text)
    text = re.sub(r"/\S*/(site-packages|lib/python[\d.]+|ding_like|dizoo|tests)/", r"\1/", text)
    text = re.sub(r"^\d\d:\d\d:\d\d ", "", text, flags=re.MULTILINE)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    text = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return f"{text}\n"


def page(folder: Path) -> str:
    """Return the page, with answers of now; what is tried is tried in `folder`."""
    trained = train(folder / "trained")
    parts = [_HEAD.format(count=len(CASES), config=MY_CONFIG)]
    number = 0
    for title, cases in SECTIONS.items():
        parts.append(f"## {title}\n")
        for case in cases:
            number += 1
            here = folder / f"case_{number}"
            trial = try_case(case, here, trained, with_fix=False)
            parts.append(entry(case, normal(trial.answer.error or trial.answer.out, here)))
    return "\n".join(parts)


def _typed(typed: str, config: str) -> str:
    if not typed.startswith("ding "):
        return typed
    return (f"# my_config.py ends with\n{config}\n" if config else "") + f"$ {typed}\n"


def _fixed_files(case: Case) -> str:
    names = [name for name in case.fixed_files if case.fixed_files[name] != case.files.get(name)]
    return f"\nFix: mend {' and '.join(f'`{name}`' for name in names)}.\n" if names else ""
