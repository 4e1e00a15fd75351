"""Show what wrong inputs are answered, for those who write the answers: `python -m tests.wrong_inputs WORD...`.

Every case whose name holds one of the words is run. `--write` writes docs/wrong_inputs.md again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.wrong_inputs.judge import Trial, faults_of, train, try_case
from tests.wrong_inputs.table import CASES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.wrong_inputs", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--write", action="store_true", help="Write the page with the answers.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.write:
            from tests.wrong_inputs.page import PAGE, page

            PAGE.write_text(page(Path(folder)))
            return
        _show(Path(folder), arguments.words)


def _show(folder: Path, words: list[str]) -> None:
    run = train(folder / "trained")
    chosen = [case for case in CASES if not words or any(word in case.name for word in words)]
    num_wrong = 0
    for number, case in enumerate(chosen):
        trial = try_case(case, folder / f"case_{number}", run)
        faults = faults_of(case, trial)
        num_wrong += bool(faults)
        if faults or words:
            _write(case.name, case.typed, trial, faults)
    sys.stdout.write(f"{len(chosen)} wrong inputs, {num_wrong} not answered as they should be\n")


def _write(name: str, typed: str, trial: Trial, faults: list[str]) -> None:
    sys.stdout.write(f"### {name}\n{typed}\n-----\n{trial.answer.text[-3000:]}\n")
    sys.stdout.write("".join(f"  * {fault}\n" for fault in faults) + "\n")


main()
