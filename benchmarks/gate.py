"""Measure this tree beside the last released commit, and fail where it has become slower.

Both are built, and run in turn, each by its own contenders on the same work: DQN, PPO and the collector by the CPU
seconds that they report, mode parallel by those of all its processes, imports included. The ratio is that of released
to this tree in CPU seconds, of the best round of each: what disturbs a run only adds to it. Less than 1 is slower; it
must be at least 0.85.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import Measured
from benchmarks.provenance import git
from benchmarks.rounds import ROOT, environment_of, processor

RELEASED = Path(__file__).with_name("released.txt")
LEAST = 0.85
ROUNDS, MORE_ROUNDS = 3, 2  # a workload that is too slow after the first is measured again, once
_TIMEOUT_S = 120.0
# Run a module without what draws: the pictures of a run would take half of the gate's time, and none of it counts.
_RUN = (
    "import runpy, sys; sys.modules.update(matplotlib=None, PIL=None); "
    "sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


class Workload(NamedTuple):
    """Contender with its arguments; `is_whole`: the CPU seconds of all its processes count, not those it reports."""

    script: str
    args: tuple[str, ...]
    is_whole: bool = False


WORKLOADS = {
    "dqn": Workload("dqn_ours", ("--steps", "12000")),
    "ppo": Workload("ppo_ours", ("--steps", "49152")),
    "collector": Workload("collect_ours", ("--steps", "80000")),
    "parallel": Workload("parallel_ours", ("--steps", "2000", "--no-evaluation", "--mode", "parallel"), is_whole=True),
}
# Return the CPU seconds of a workload in the tree at a path, for a million steps where the contender reports a rate.
Measure = Callable[[Workload, Path], float]


class GateError(Exception):
    """The gate cannot measure."""


def main() -> None:
    """Print the ratio of each workload; the exit status is 1 if one is below the limit."""
    commit = RELEASED.read_text().split()[0]
    if not _is_there(commit):
        if not _is_whole():
            print(
                f"gate: NOT MEASURED: commit {commit} (benchmarks/released.txt) is not in this copy and could not be "
                "fetched: run `git fetch --unshallow origin`"
            )
            return
        sys.exit(f"gate: commit {commit} (benchmarks/released.txt) is not in this clone: correct the hash")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the folder is removed then too
    with tempfile.TemporaryDirectory(prefix="ding-gate-") as folder:
        try:
            unpack(commit, Path(folder))
            slower = compare(WORKLOADS, cpu_s, trees=(ROOT, Path(folder)))
        except (GateError, subprocess.SubprocessError) as error:
            sys.exit(f"gate: {error}")
    if slower:
        sys.exit(f"gate: {', '.join(slower)} slower than commit {commit[:8]}: below {LEAST} of its speed")


def compare(
    workloads: Mapping[str, Workload], measure: Measure, *, trees: tuple[Path, Path], rounds: int = ROUNDS
) -> list[str]:
    """Measure each workload in `trees`, this one and the released one, in turn; return the names of those too slow."""
    print(f"gate: {rounds} rounds, {processor()}", flush=True)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in workloads}
    for _ in range(rounds):
        for name, workload in workloads.items():
            found[name].append(tuple(measure(workload, tree) for tree in trees))
    slower = []
    for name, workload in workloads.items():
        if _ratio(found[name]) < LEAST:
            found[name] += [tuple(measure(workload, tree) for tree in trees) for _ in range(MORE_ROUNDS)]
        ratio = _ratio(found[name])
        each = [released / ours for ours, released in found[name]]
        print(
            f"gate: {name:10} {ratio:.3f} of the released speed; rounds {min(each):.3f} to {max(each):.3f}", flush=True
        )
        if ratio < LEAST:
            slower.append(name)
    return slower


def _ratio(rounds: Sequence[Sequence[float]]) -> float:
    ours, released = map(min, zip(*rounds, strict=True))
    return released / ours


def cpu_s(workload: Workload, tree: Path) -> float:
    """Run a workload of the tree at a path and return its CPU seconds. Raises GateError where it fails."""
    command = [sys.executable, "-c", _RUN, f"benchmarks.contenders.{workload.script}", *workload.args]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        run = Measured(command, cwd=folder, env=environment_of(tree), stdout=output, stderr=subprocess.STDOUT)
        try:
            status = run.process.wait(_TIMEOUT_S)
        finally:
            run.end(timeout_s=5.0)
        output.seek(0)
        printed = output.read()
    if status:
        raise GateError(f"{workload.script} of {tree} failed with status {status}:\n{printed[-2000:]}")
    if workload.is_whole:
        return run.cpu_s
    rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return float(1e6 / next(row["value"] for row in rows if row.get("metric") == "env_steps_cpu"))


def unpack(commit: str, folder: Path) -> None:
    """Bring the tree of a commit and build its compiled part. Raises GateError where it is not what is imported."""
    archive = _run(["git", "archive", "--format=tar", commit], ROOT)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True, timeout=_TIMEOUT_S)
    for tree in (ROOT, folder):
        _run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], tree)
        found = _run(
            [sys.executable, "-c", "import ding_like; print(ding_like.__file__)"], folder.parent, tree
        ).decode()
        if not Path(found.strip()).is_relative_to(tree):
            raise GateError(f"another package than that of {tree} is imported: {found.strip()}")


def _run(command: Sequence[str], cwd: Path, tree: Path | None = None) -> bytes:
    env = None if tree is None else environment_of(tree)
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise GateError(f"{' '.join(command)} failed: {done.stderr.decode(errors='replace')[-1000:]}")
    return done.stdout


def _is_there(commit: str) -> bool:
    """Return whether the clone has a commit, which is fetched if it does not."""
    asked = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    for command in (asked, ["git", "fetch", "-q", "--depth", "1", "origin", commit], asked):
        try:
            is_done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=_TIMEOUT_S).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
        if is_done and command is asked:
            return True
    return False


def _is_whole() -> bool:
    """Tell whether this is a clone with its whole history, in which a missing commit is a wrong hash.

    In a copy without git, and a shallow clone that could not fetch the commit, there is nothing to compare with.
    """
    return git("rev-parse", "--is-shallow-repository", root=ROOT) == "false"


if __name__ == "__main__":
    main()
