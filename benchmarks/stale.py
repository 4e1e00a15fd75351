"""List recordings by how much of what they depend on has changed since, and how to make each again.

python -m benchmarks.stale [--all] [--limit 50]
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.provenance import ROOT, git

LIMIT = 50  # commits
_PACKAGE = "ding_like"
_TRAINING = ("rl_utils", "model", "data", "envs", "policy", "worker", "utils")
_SERIAL_FILES = (
    "pipeline/rows.py",
    "pipeline/collect.py",
    "pipeline/components.py",
    "pipeline/envs.py",
    "pipeline/training_loop.py",
    "pipeline/statistics.py",
)
_PARALLEL = ("pipeline/parallel", "comm")
_WORKERS = ("pipeline/scheme_parts.py", "pipeline/rows.py", "comm/workers")
_RAY = (*_WORKERS, "pipeline/ray", "comm/ray", "comm/tensors.py")
_SEED = ("pipeline/seed", "comm/zmq", "comm/workers", "comm/tensors.py")
_MODE_OF = {"parallel": _PARALLEL, "ray": _RAY, "seed": _SEED}
# What makes each report of runs on Ray.
_RAY_REPORTS = {
    "ray_gcs_kills": "tests/pipeline/ray/gcs_kills.py",
}
# What a benchmark measures beside its contenders.
_BENCHMARKS = {
    "buffer": (("worker/replay_buffer", "data"), "buffer_*"),
    "collect": (("envs", "worker/collector", "data", "policy"), "collect_*"),
    "coordinator": (_PARALLEL, "../coordinator.py"),
    "end_to_end": (_TRAINING, "dqn_*"),
    "end_to_end_ppo": (_TRAINING, "ppo_*"),
    "end_to_end_sac": (_TRAINING, "qac_*"),
    "end_to_end_td3": (_TRAINING, "qac_*"),
    "envs_": (("envs", "data"), "envs*"),
    "learners_": ((*_TRAINING, "comm/learner_group.py", "pipeline/learners"), "learners*"),
    "parallel_": ((*_TRAINING, *_PARALLEL, *_RAY), "parallel_*"),
    "scaling": ((*_TRAINING, *_PARALLEL, *_RAY), "scaling_*"),
    "ray_": ((*_TRAINING, *_SERIAL_FILES, *_RAY), "ray_*"),
    "atari_": ((*_TRAINING, *_SERIAL_FILES), "atari_*"),
    "seed_inference_": (("envs", "model", "policy", *_SEED), "inference_*"),
    "seed_parallel": ((*_TRAINING, *_SERIAL_FILES, *_SEED), "seed_*"),
    "updates_": (_TRAINING, "updates_*"),
    "weights_": (("comm",), "weights_*"),
}


class Recording(NamedTuple):
    """Recorded file, what it depends on, and the command that makes it again."""

    path: str
    depends_on: tuple[str, ...]  # paths of the tree, or patterns of git
    command: str


class Age(NamedTuple):
    """Age of a recording."""

    recording: Recording
    commit: str | None  # None: git knows nothing of it
    is_told: bool  # the file itself says the commit; else it is the one that changed the file last
    behind: int | None  # commits since then that changed what it depends on


def recordings(root: Path = ROOT) -> Iterator[Recording]:
    """Yield every recorded file of the tree. Raises KeyError for one that no command makes again."""
    for path in sorted((root / "docs/learning").glob("*.json")):
        yield _learning(path, root)
    for path in sorted((root / "docs/results").glob("*.json")):
        yield _result(path, root)
    for path in sorted((root / "benchmarks/results").glob("*.jsonl")):
        yield _benchmark(path, root)
    for path in sorted((root / "docs/reports").glob("*.json")):
        yield _report(path, root)


def ages(root: Path = ROOT) -> Iterator[Age]:
    """Yield the age of every recording."""
    for recording in recordings(root):
        told = [_known(said, root) for said in commits_of(root / recording.path)]
        known = [commit for commit in told if commit is not None]
        last = git("log", "-1", "--format=%H", "--", recording.path, root=root)
        commits = known or ([last] if last else [])
        # Of parts that were recorded at different times the oldest counts.
        behind = [(_num_behind(commit, recording.depends_on, root), commit) for commit in commits]
        number, commit = max(behind, default=(None, None))
        yield Age(recording, commit, bool(known), number)


def _known(said: str, root: Path) -> str | None:
    return git("rev-parse", "--verify", "--quiet", f"{said}^{{commit}}", root=root)


def _num_behind(commit: str, paths: Sequence[str], root: Path) -> int:
    """Return how many commits since this one have changed these paths."""
    return int(git("rev-list", "--count", f"{commit}..HEAD", "--", *paths, root=root) or 0)


def commits_of(path: Path) -> set[str]:
    """Return the commits that a recorded file says it, or parts of it, were made with."""
    text = path.read_text()
    rows = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
    parts = [*rows, *(part for row in rows for part in row.values() if isinstance(part, dict))]
    parts += [run for row in rows for run in row.get("runs", ()) if isinstance(run, dict)]
    return {str(part["commit"]).removesuffix("-dirty") for part in parts if part.get("commit")}


def _learning(path: Path, root: Path) -> Recording:
    record: Mapping[str, Any] = json.loads(path.read_text())
    (config,) = [found.relative_to(root) for found in (root / "dizoo").rglob(record["config"])]
    parts = (*_TRAINING, *_SERIAL_FILES, *_MODE_OF.get(record["mode"], ()))
    if "variants" in record:
        limit = ["--env-step", str(record["limit_env_step"]), "--episodes", str(record["episodes"])]
        seeds = ["--seeds", str(len(record["variants"][0]["runs"]))]
        name = config.stem.removeprefix("cartpole_").removesuffix("_config")
        ablation = ["python", "-m", "tests.learning.ablation", name, *seeds, *limit, "--out", _name(path, root)]
        return Recording(_name(path, root), (*_in_package(parts), str(config)), shlex.join(ablation))
    command = ["python", "-m", "tests.learning.record", str(config), "--mode", record["mode"]]
    command += ["--seeds", str(len(record["runs"])), "--episodes", str(record["episodes"])]
    if record.get("limit_env_step"):
        command += ["--env-step", str(record["limit_env_step"])]
    if expert := record.get("expert"):
        command += ["--expert", expert]
    command += ["--out", _name(path, root), *record["overrides"]]
    return Recording(_name(path, root), (*_in_package(parts), str(config)), shlex.join(command))


def _result(path: Path, root: Path) -> Recording:
    """Return what `tests.learning.learn` recorded; a run of a peer depends on nothing in the package."""
    record: Mapping[str, Any] = json.loads(path.read_text())
    configs = [str(found.relative_to(root)) for found in (root / "dizoo").rglob(f"{record['config']}*")]
    parts = () if record["mode"] == "sb3" else _in_package((*_TRAINING, *_SERIAL_FILES))
    command = f"python -m tests.learning.learn --again {path.stem}"
    return Recording(_name(path, root), (*parts, *configs, "tests/learning/learn.py"), command)


def _benchmark(path: Path, root: Path) -> Recording:
    parts, contenders = next(
        found for name, found in sorted(_BENCHMARKS.items(), reverse=True) if path.stem.startswith(name)
    )
    own = "benchmarks/coordinator.py" if path.stem == "coordinator" else f"benchmarks/contenders/{contenders}"
    command = {
        "buffer": "python -m benchmarks.buffer --record",
        "coordinator": "python -m benchmarks.coordinator --record",
    }.get(path.stem, f"python -m benchmarks --record --only {path.stem}")
    return Recording(_name(path, root), (*_in_package(parts), own), command)


def _report(path: Path, root: Path) -> Recording:
    name = _name(path, root)
    if path.stem.startswith("chaos_"):
        command = f"python -m tests.chaos --only {path.stem.removeprefix('chaos_')}"
        modes = {"chaos_ray_": (*_RAY, *_SERIAL_FILES), "chaos_seed_": (*_SEED, *_SERIAL_FILES)}
        parts = next((each for begin, each in modes.items() if path.stem.startswith(begin)), (*_PARALLEL, "data"))
        return Recording(name, (*_in_package(parts), "tests/chaos"), command)
    if path.stem == "gym_hybrid_moving_optimum":
        own = ("dizoo/gym_hybrid/envs/field.py", "tests/learning/hybrid_optimum.py")
        return Recording(name, own, f"python -m tests.learning.hybrid_optimum --out {name}")
    if path.stem == "games":
        parts = (*_TRAINING, "league", "pipeline")
        own = ("dizoo/league_demo", "dizoo/petting_zoo", "dizoo/multi_agent", "dizoo/image_classification")
        return Recording(name, (*_in_package(parts), *own), f"python -m tests.learning.games --out {name}")
    if path.stem == "weight_updater_torchrl":
        command = "~/.cache/ding_bench/peers/bin/python -m benchmarks.differential.weight_updater"
        parts = ("comm/weight_updater.py", "comm/update_worker.py", "comm/tensors.py")
        return Recording(name, (*_in_package(parts), "benchmarks/differential"), command)
    if path.stem == "two_learners":
        parts = (*_TRAINING, "comm/learner_group.py", "pipeline/learners")
        command = f"python -m tests.pipeline.learners.two_learners --out {name}"
        return Recording(name, (*_in_package(parts), "tests/pipeline/learners"), command)
    if path.stem == "serve":
        parts = ("serve", "serve", "entry/results.py", "policy/forward.py")
        return Recording(
            name, (*_in_package(parts), "benchmarks/serve_load.py"), f"python -m benchmarks.serve_load --out {name}"
        )
    if path.stem == "live_page":
        own = ("report/live.py", "report/process_table.py", "serve/run_page.py")
        command = f"python -m benchmarks.live_page --out {name}"
        return Recording(name, (*_in_package(own), "benchmarks/live_page.py"), command)
    if path.stem == "seed_runs":
        parts = (*_TRAINING, *_SERIAL_FILES, *_SEED)
        own = ("dizoo/atari", "tests/learning/seed_runs.py")
        return Recording(name, (*_in_package(parts), *own), f"python -m tests.learning.seed_runs --out {name}")
    if path.stem == "di_engine_stop_values":
        depends_on = (*_in_package((*_TRAINING, *_SERIAL_FILES, "config")), "tests/learning/stop_values.py")
        return Recording(name, depends_on, f"python -m tests.learning.stop_values package/dizoo --out {name}")
    if path.stem == "first_hour":
        parts = (*_TRAINING, *_SERIAL_FILES, "entry", "agent", "report", "study")
        command = f"python -m benchmarks.first_hour --ours BIN --sb3 BIN --out {name}"
        return Recording(name, (*_in_package(parts), "benchmarks/first_hour"), command)
    if path.stem == "seed_fuzz":
        own = ("tests/comm/zmq/hostile",)
        return Recording(name, (*_in_package(("comm/zmq",)), *own), "python -m tests.comm.zmq.hostile.test_fuzz")
    if path.stem in _RAY_REPORTS:
        own = _RAY_REPORTS[path.stem]
        parts = (*_RAY, *_SERIAL_FILES)
        module = own.removesuffix(".py").replace("/", ".")
        return Recording(name, (*_in_package(parts), own), f"python -m {module} --out {name}")
    command = f"DING_CHAOS_REPORT=$PWD/{name} pytest -m chaos tests/chaos/test_env_faults.py"
    return {"env_faults": Recording(name, (*_in_package(("envs",)), "tests/envs/faulty_env.py"), command)}[path.stem]


def _in_package(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{_PACKAGE}/{part}" for part in parts)


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def main(argv: list[str] | None = None) -> None:
    """List the stale recordings, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stale", description=__doc__)
    parser.add_argument("--all", action="store_true", help="list those that are not stale too")
    parser.add_argument("--limit", type=int, default=LIMIT, help="commits behind that are still fine (%(default)s)")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    found = list(ages(args.root))
    stale = [each for each in found if each.behind is None or each.behind > args.limit]
    for each in found if args.all else stale:
        commit = "not in git" if each.commit is None else each.commit[:12]
        said = "" if each.is_told else " (it names no commit that is here: by its last change)"
        behind = "unknown" if each.behind is None else str(each.behind)
        print(f"{each.recording.path}: made at {commit}{said}, {behind} commits behind in what it depends on")
        print(f"    {each.recording.command}")
    print(f"{len(stale)} of {len(found)} recordings are more than {args.limit} commits behind in what they depend on")


if __name__ == "__main__":
    main()
