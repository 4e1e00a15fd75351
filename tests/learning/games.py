"""Train in games and teams, judge what was learned by fresh games, and write it down.

python -m tests.learning.games --out docs/reports/games.json [--seeds 3] [--only matrix board spread two_step digits]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.config import read_config
from ding_like.data.batch import split_mask
from ding_like.data.rows import EvalMode
from ding_like.entry import parallel_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.entry.training import load_config
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.envs.manager.game import VersusManager
from ding_like.pipeline.envs import fit_policy_config
from ding_like.pipeline.statistics import load_agent
from ding_like.policy import create_policy
from ding_like.policy.di_engine_view import RandomActor
from ding_like.types import EnvManager
from ding_like.worker.evaluator import play_episodes
from dizoo.league_demo.matrix_game import BIASED_RPS_EQUILIBRIUM

ROOT = Path(__file__).parents[2]
MATRIX = ROOT / "dizoo/league_demo/config/matrix_game_a2c_config.py"
BOARD = ROOT / "dizoo/petting_zoo/config/tictactoe_dqn_config.py"
SPREAD = ROOT / "dizoo/multi_agent/config/simple_spread_qmix_config.py"
TWO_STEP = ROOT / "dizoo/multi_agent/config/two_step_qmix_config.py"
MATRIX_STEPS, BOARD_STEPS, SPREAD_STEPS, TWO_STEP_STEPS = 3_000_000, 200_000, 40_000, 40_000


def matrix(seed: int, *, mode: str = "serial_onpolicy") -> dict[str, Any]:
    """Return the mixture that self-play has found, and how far its furthest action is from the equilibrium's."""
    run: Any = serial_pipeline_onpolicy if mode == "serial_onpolicy" else parallel_pipeline
    folder = Path(f"matrix_{mode}{seed}")
    run(str(MATRIX), seed=seed, exp_name=str(folder), max_env_step=MATRIX_STEPS)
    result = json.loads((folder / "result.json").read_text())
    newest = folder / f"ckpt/iteration_{result.get('last_iter', result['train_iter'])}.pth.tar"
    cfg = load_config(str(MATRIX), seed=seed, exp_name=str(folder), save=False, renew_dir=False)
    env_fn, _, env_cfgs = get_vec_env_setting(cfg.env, collect=False)
    with create_env_manager(cfg.env.manager, [EnvFactory(each, env_fn) for each in env_cfgs]) as manager:
        policy = create_policy(fit_policy_config(cfg.policy, manager))
    load_agent(policy.eval_mode, newest)
    with torch.no_grad():
        logits = policy.get_attribute("model").actor(torch.ones(1, 1))
    mixture = torch.softmax(logits[0], dim=0).tolist()
    distance = max(abs(ours - theirs) for ours, theirs in zip(mixture, BIASED_RPS_EQUILIBRIUM, strict=True))
    return {
        "env_step": result["env_step"],
        "mixture": [round(each, 4) for each in mixture],
        "distance": round(distance, 4),
    }


class Watched:
    """Actor whose illegal actions are counted."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.actions = self.illegal = 0

    def act(self, obs: Any, **kwargs: Any) -> Any:
        columns = self._actor.act(obs, **kwargs)
        mask = split_mask(obs)[1]
        assert mask is not None, "the game says what is legal"
        self.actions += len(mask)
        self.illegal += int((mask[np.arange(len(mask)), columns["action"]] == 0).sum())
        return columns

    def reset(self, lanes: Any = None) -> None:
        self._actor.reset(lanes)


def board(seed: int) -> dict[str, Any]:
    """Return how 200 fresh games of the last model against a random player ended, each side played as often."""
    policy = serial_pipeline(str(BOARD), seed=seed, exp_name=f"board{seed}", max_env_step=BOARD_STEPS)
    games = _evaluation_envs(BOARD, "game")
    rng = np.random.default_rng(10_000 + seed)
    seen = VersusManager(games, rng=rng, opponent=RandomActor(games.action_space))
    watched = Watched(policy.eval_mode.actor)
    mode: EvalMode = policy.eval_mode._replace(actor=watched)
    returns = play_episodes(seen, mode, 200, rng=rng).returns
    seen.close()
    results = {"wins": returns.count(1.0), "draws": returns.count(0.0), "losses": returns.count(-1.0)}
    return {**results, "games": len(returns), "moves": watched.actions, "illegal": watched.illegal}


def spread(seed: int) -> dict[str, Any]:
    """Return the mean return of 200 fresh episodes, and by how many standard errors it is above a random team's."""
    policy = serial_pipeline(str(SPREAD), seed=seed, exp_name=f"spread{seed}", max_env_step=SPREAD_STEPS)
    ours, random = (_team_returns(SPREAD, policy, seed, at_random=at_random) for at_random in (False, True))
    error = float(np.hypot(*(np.std(each, ddof=1) / np.sqrt(len(each)) for each in (ours, random))))
    means = [float(np.mean(each)) for each in (ours, random)]
    return {
        "eval_value": round(means[0], 2),
        "random_value": round(means[1], 2),
        "standard_error": round(error, 3),
        "standard_errors_above": round((means[0] - means[1]) / error, 1),
    }


def _evaluation_envs(config: Path, kind: str) -> EnvManager:
    """Return a launched manager of the envs that a config evaluates in."""
    file = read_config(config)
    env_fn, _, cfgs = get_vec_env_setting({**file.main_config.env, **file.create_config.env})
    manager = create_env_manager({"type": kind}, [EnvFactory(cfg, env_fn) for cfg in cfgs])
    manager.launch()
    return manager


def _team_returns(config: Path, policy: Any, seed: int, *, at_random: bool) -> list[float]:
    manager = _evaluation_envs(config, "base")
    mode = policy.eval_mode
    if at_random:
        mode = mode._replace(actor=RandomActor(manager.action_space))
    returns = play_episodes(manager, mode, 200, rng=np.random.default_rng(20_000 + seed)).returns
    manager.close()
    return returns


def two_step(seed: int) -> dict[str, Any]:
    """Return what the last model gets: 8 is the best, 7 what each agent finds by itself."""
    policy = serial_pipeline(str(TWO_STEP), seed=seed, exp_name=f"two_step{seed}", max_env_step=TWO_STEP_STEPS)
    returns = _team_returns(TWO_STEP, policy, seed, at_random=False)
    result = json.loads(Path(f"two_step{seed}/result.json").read_text())
    return {"eval_value": min(returns), "env_step": result["env_step"]}


def digits(seed: int) -> dict[str, Any]:
    """Return what the last classifier makes of the held-out digits."""
    from dizoo.image_classification.digits import train

    found = train(seed=seed, exp_name=f"digits{seed}")
    return {name: round(value, 4) for name, value in found.items()}


TASKS: dict[str, Callable[[int], dict[str, Any]]] = {
    "matrix": matrix,
    "matrix_parallel": lambda seed: matrix(seed, mode="parallel"),
    "board": board,
    "spread": spread,
    "two_step": two_step,
    "digits": digits,
}


def main() -> None:
    """Parse the command line, train and write; tasks that are not chosen keep what the file says of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit too")
    args = parser.parse_args()
    try:
        code = provenance(allow_dirty=args.allow_dirty)
    except DirtyTreeError as error:
        sys.exit(f"tests.learning.games: {error}")
    out = args.out.resolve()
    report = json.loads(out.read_text()) if out.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in args.only:
            rows = [{"seed": seed, **TASKS[name](seed)} for seed in range(args.seeds)]
            report[name] = {**code.to_plain(), "runs": rows, "median": _medians(rows)}
            sys.stdout.write(f"{name}: {json.dumps(report[name], indent=1)}\n")
            out.write_text(json.dumps(report, indent=1) + "\n")
        os.chdir("/")


def _medians(rows: list[dict[str, Any]]) -> dict[str, float]:
    numbers = [name for name, value in rows[0].items() if isinstance(value, (int, float)) and name != "seed"]
    return {name: statistics.median(row[name] for row in rows) for name in numbers}


if __name__ == "__main__":
    main()
