"""Record the results of docs/results.md: train each shipped config for its budget, over its seeds.

python -m tests.learning.learn                # what is missing, two runs at a time
python -m tests.learning.learn 'hopper_*'     # of these; --list shows all, --again records afresh
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from benchmarks.table import VENVS
from tests.learning.record import as_text

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
PEERS = VENVS / "peers" / "bin" / "python"


class Budget(NamedTuple):
    """How a shipped config is trained for a result, and what is published of others."""

    config: str  # in dizoo; of a peer, the id of the env
    env_step: int
    mode: str = "serial"
    seeds: int = 3
    episodes: int = 20
    overrides: tuple[str, ...] = ()
    published: float | None = None
    source: str = ""

    def command(self, seed: int, out: Path) -> list[str]:
        """Return the command that records one seed."""
        run = ["--first-seed", str(seed), "--episodes", str(self.episodes), "--env-step", str(self.env_step)]
        run += ["--out", str(out)]
        if self.mode == "sb3":
            return [str(PEERS), "-m", "tests.learning.sb3_sac", self.config, *run]
        path = str(ROOT / "dizoo" / self.config)
        if self.mode == "random":
            return [sys.executable, "-m", "tests.learning.random_policy", path, *run]
        run += ["--mode", self.mode, "--seeds", "1"]
        return [sys.executable, "-m", "tests.learning.record", path, *self.overrides, *run]


MUJOCO = "mujoco/config"
ZOO = "rl-zoo3 benchmark.md, one run, 1,000,000 steps of v3"
PAPER = "CrossQ, mean of 10 seeds, 200,000 steps of v4"
GYMNAX = "gymnax, PPO"
EPYMARL = "EPyMARL, old MPE with collisions"
MINATAR_STEPS = 3_000_000
MOST_S = 12 * 3600.0  # of one seed; a run that hangs is ended then


def _of_mujoco() -> Iterator[tuple[str, Budget]]:
    for policy in ("sac", "tqc", "crossq"):
        yield f"halfcheetah_{policy}", Budget(f"{MUJOCO}/halfcheetah_{policy}_config.py", 100_000)
    yield "halfcheetah_sac_sb3", Budget("HalfCheetah-v5", 100_000, "sb3")
    zoo = {"halfcheetah": 5819.0, "hopper": 2410.0, "walker2d": 3479.0}
    for env, published in zoo.items():
        config = f"{MUJOCO}/{env}_ppo_config.py"
        yield f"{env}_ppo", Budget(config, 1_000_000, "serial_onpolicy", published=published, source=ZOO)
    paper = {"HalfCheetah": 9363.0, "Hopper": 2577.0, "Walker2d": 5174.0, "Ant": 4853.0}
    for env, published in paper.items():
        config = f"{MUJOCO}/halfcheetah_crossq_config.py"
        others = (f"env.env_id={env}-v5", "env.stop_value=1e9")
        best = Budget(config, 200_000, overrides=others, published=published, source=PAPER)
        yield f"{env.lower()}_crossq_200k", best


def _of_minatar() -> Iterator[tuple[str, Budget]]:
    published = {"Asterix": 15.0, "Breakout": 28.0, "Freeway": 58.0, "Seaquest": None, "SpaceInvaders": 131.0}
    for policy in ("ppo", "pqn"):
        for game, value in published.items():
            yield (
                f"minatar_{game.lower()}_{policy}",
                Budget(
                    f"minatar/config/minatar_breakout_{policy}_config.py",
                    MINATAR_STEPS,
                    "serial_onpolicy",
                    overrides=(f"env.env_id=MinAtar/{game}-v1", f"policy.learn.schedule.env_steps={MINATAR_STEPS}"),
                    published=value,
                    source="" if value is None else GYMNAX,
                ),
            )


def _of_teams() -> Iterator[tuple[str, Budget]]:
    modes = {"mappo": "serial_onpolicy", "qmix": "serial", "maddpg": "serial"}
    published = {"simple_spread_mappo": -133.54, "simple_spread_qmix": -126.62, "simple_spread_maddpg": -141.70}
    for task, env_step in (("simple_spread", 200_000), ("speaker_listener", 300_000)):
        for policy, mode in modes.items():
            value = published.get(f"{task}_{policy}")
            source = "" if value is None else EPYMARL
            config = f"multi_agent/config/{task}_{policy}_config.py"
            team = Budget(config, env_step, mode, seeds=5, episodes=100, published=value, source=source)
            yield f"{task}_{policy}", team
        config = f"multi_agent/config/{task}_qmix_config.py"
        yield f"{task}_random", Budget(config, env_step, "random", seeds=5, episodes=100)
    for policy, mode, env_step in (("mappo", "serial_onpolicy", 1_000_000), ("masac", "serial", 50_000)):
        config = f"multiagent_mujoco/config/halfcheetah_{policy}_config.py"
        yield f"halfcheetah_2x3_{policy}", Budget(config, env_step, mode)


BUDGETS: dict[str, Budget] = {
    **dict(_of_mujoco()),
    **dict(_of_minatar()),
    **dict(_of_teams()),
    "pong_ppo": Budget("atari/config/pong_ppo_config.py", 1_500_000, "serial_onpolicy", seeds=1),
    # The first 1,000,000 frames, of which an env step takes four.
    "pong_rainbow": Budget(
        "atari/config/pong_rainbow_config.py", 250_000, seeds=1, overrides=("policy.eval.evaluator.eval_freq=2500",)
    ),
}


def recorded(name: str) -> dict[str, Any] | None:
    """Return what is recorded of a result, None if nothing is."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def with_seed(found: dict[str, Any] | None, part: dict[str, Any]) -> dict[str, Any]:
    """Return a recording with the one seed of `part` in it; that of another config or budget is replaced."""
    commit = part["commit"]
    head = {key: part[key] for key in ("config", "mode", "overrides", "episodes", "limit_env_step")}
    rows = [{**row, "commit": commit} for row in part["runs"]]
    if found is not None and all(found[key] == value for key, value in head.items()):
        seeds = {row["seed"] for row in rows}
        rows += [row for row in found["runs"] if row["seed"] not in seeds]
    return {**head, "runs": sorted(rows, key=lambda row: int(row["seed"]))}


def missing(name: str, *, again: bool) -> list[int]:
    """Return the seeds of a result that are to be recorded."""
    found = None if again else recorded(name)
    there = set() if found is None else {row["seed"] for row in found["runs"]}
    return [seed for seed in range(BUDGETS[name].seeds) if seed not in there]


def learn(name: str, seed: int, lock: Lock) -> str | None:
    """Record one seed and put it into the file of its result; return what went wrong, None if nothing did."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.json"
        sys.stdout.write(f"{name}, seed {seed}: training\n")
        command = BUDGETS[name].command(seed, part)
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MOST_S)
        except subprocess.TimeoutExpired:
            return f"{name}, seed {seed}: not done after {MOST_S / 3600:g} hours"
        if done.returncode != 0:
            return f"{name}, seed {seed}: {done.stderr.strip()[-600:] or f'status {done.returncode}'}"
        with lock:
            whole = with_seed(recorded(name), json.loads(part.read_text()))
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / f"{name}.json").write_text(as_text(whole))
    (row,) = (row for row in whole["runs"] if row["seed"] == seed)
    sys.stdout.write(
        f"{name}, seed {seed}: {row['eval_value']} after {row['env_step']:,} env steps, {row['cpu_s']} s\n"
    )
    return None


def main() -> None:
    """Record what is missing of the results that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["*"], help="results, or patterns of them; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="how many runs at a time, each on a core")
    parser.add_argument("--seeds", type=int, help="record no more than so many seeds")
    parser.add_argument("--again", action="store_true", help="record also what is recorded")
    parser.add_argument("--list", action="store_true", help="list results, budgets and what is recorded")
    args = parser.parse_args()
    names = [name for name in BUDGETS if any(fnmatch.fnmatch(name, pattern) for pattern in args.names)]
    if not names:
        parser.error(f"no result is called {' or '.join(args.names)}; --list shows all")
    if args.list:
        for name in names:
            seeds = len((recorded(name) or {"runs": []})["runs"])
            sys.stdout.write(
                f"{name:28} {BUDGETS[name].env_step:>10,} env steps  {seeds}/{BUDGETS[name].seeds} seeds\n"
            )
        return
    runs = [(name, seed) for name in names for seed in missing(name, again=args.again)[: args.seeds]]
    lock = Lock()
    with ThreadPoolExecutor(args.jobs) as pool:
        failed = [error for error in pool.map(lambda run: learn(*run, lock), runs) if error is not None]
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
