"""Type wrong inputs in a process of their own: what other tests have imported or registered plays no part there.

The process reads a line of JSON for each, `{"case": NAME, "folder": PATH, "with_fix": BOOL}`, and answers with a line:
the Trial.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.wrong_inputs.cases import Case
from tests.wrong_inputs.run import Answer, Trial, train, try_case
from tests.wrong_inputs.table import CASES

ROOT = Path(__file__).parents[2]
_CLOSE_S = 60.0


class Typist:
    """Process that types wrong inputs; `folder` is where it trains the run that some cases need, and keeps its log."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "typist.txt"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.wrong_inputs.typist", str(folder)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def try_case(self, case: Case, folder: Path, *, with_fix: bool) -> Trial:
        """Return what becomes of a case in a new folder."""
        assert self._process.stdin is not None and self._process.stdout is not None, "pipes were asked for"
        asked = {"case": case.name, "folder": str(folder), "with_fix": with_fix}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process that types has ended: {self._log.read_text()[-2000:]}"
        answer, left, fixed = json.loads(line)
        return Trial(Answer(*answer), left, None if fixed is None else Answer(*fixed))

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=_CLOSE_S)


def main() -> None:
    """Answer until the input ends."""
    # Answers go where the standard output went; what the cases print themselves must not be among them.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cases, trained = {case.name: case for case in CASES}, train(Path(sys.argv[1]) / "here")
    for line in sys.stdin:
        asked = json.loads(line)
        case, folder = cases[asked["case"]], Path(asked["folder"])
        answers.write(json.dumps(try_case(case, folder, trained, with_fix=asked["with_fix"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
