"""Run all mutations and print what became of each; the exit status is 1 unless all were noticed.

python -m tests.mutation [--only TEXT ...] [--processes 2]
python -m tests.mutation --find tests/rl_utils [--only TEXT ...]    # which tests there notice, to choose killers from
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tests.mutation import (
    algorithms,
    central,
    collecting,
    data,
    encodings,
    learners,
    memory,
    parallel,
    rows,
    serving,
    weights,
)
from tests.mutation.runner import Mutation, applied, make_copy, run, run_tests

MUTATIONS = (
    *algorithms.MUTATIONS,
    *central.MUTATIONS,
    *collecting.MUTATIONS,
    *data.MUTATIONS,
    *encodings.MUTATIONS,
    *learners.MUTATIONS,
    *memory.MUTATIONS,
    *parallel.MUTATIONS,
    *rows.MUTATIONS,
    *serving.MUTATIONS,
    *weights.MUTATIONS,
)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="mutations whose file or text holds it")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--find", nargs="+", metavar="TESTS", help="run these tests on each and list those that fail")
    args = parser.parse_args()
    chosen = [each for each in MUTATIONS if any(text in each.file + each.old for text in args.only)]
    with tempfile.TemporaryDirectory() as folder:
        if args.find:
            _find(chosen, args.find, Path(folder))
            return
        outcomes = []
        for outcome in run(chosen, Path(folder), processes=args.processes):
            outcomes.append(outcome)
            mutation = outcome.mutation
            print(
                f"{outcome.verdict:12} {mutation.file.removeprefix('ding_like/'):40} {_line(mutation.new)}", flush=True
            )
            if not outcome.is_killed:
                print(f"{'':12} {outcome.detail}", flush=True)
    missed = [outcome for outcome in outcomes if not outcome.is_killed]
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} mutations were noticed")
    sys.exit(bool(missed))


def _find(chosen: list[Mutation], tests: list[str], folder: Path) -> None:
    copy = make_copy(folder)
    for mutation in chosen:
        with applied(mutation, copy):
            done = run_tests(copy, tests, timeout_s=600.0, options=("-rfE", "--tb=no"))
        print(f"{mutation.file}: {_line(mutation.new)}")
        for killer in re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE) or ["none of these tests"]:
            print(f"    {killer}", flush=True)


def _line(text: str) -> str:
    return " ".join(text.split())[:90]


if __name__ == "__main__":
    main()
