"""Games of a team whose best return is known: what each policy ends at, by full exploration where it learns off-policy.

python -m tests.learning.matrix_games [NAME ...] [--games GAME ...] [--seeds 3] [--out docs/reports/matrix_games.json]

A run of a new policy is one line of RUNS. Of policies that put agents' values together the greedy values Q_tot of all
joint actions are kept too: what a sum or a monotonic mixer cannot represent is seen there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.config import deep_merge
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.envs import create_env_manager, get_vec_env_setting
from ding_like.policy import get_policy_cls
from ding_like.worker.evaluator import play_episodes
from dizoo.multi_agent.switch_game import BEST_RETURNS
from dizoo.multi_agent.team_matrix_game import PAYOFFS

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "docs/reports/matrix_games.json"


class Game(NamedTuple):
    """Env of a team with its best return, and how long policies learn in it."""

    env: dict[str, Any]  # `type`, and what the env is given
    best: float
    env_steps: int
    settings: dict[str, Any] = {}  # of policies that explore by epsilon


def _matrix(name: str) -> Game:
    return Game(dict(type="team_matrix_game", game=name), float(PAYOFFS[name].max()), 3_000)


GAMES: dict[str, Game] = {
    **{name: _matrix(name) for name in PAYOFFS},
    "two_step": Game(dict(type="two_step_game"), 8.0, 5_000),
    # Chance alone hardly ever gets through the corridor: exploration falls.
    "switch": Game(
        dict(type="switch_game", agents=2),
        BEST_RETURNS[2],
        20_000,
        dict(
            nstep=3,
            collect=dict(n_sample=32),
            other=dict(eps=dict(type="linear", start=1.0, end=0.05, decay=10_000)),
        ),
    ),
}
_VALUES: dict[str, Any] = dict(
    model=dict(hidden_size_list=[64]),
    discount_factor=0.99,
    random_collect_size=64,
    learn=dict(update_per_collect=8, batch_size=64, learning_rate=1e-3, target_update_freq=100),
    collect=dict(n_sample=16),
    # As in the papers: everything is tried, always.
    other=dict(eps=dict(type="linear", start=1.0, end=1.0, decay=1), replay_buffer=dict(replay_buffer_size=5000)),
)
_ACTORS: dict[str, Any] = dict(
    model=dict(hidden_size_list=[64]),
    learn=dict(batch_size=32, learning_rate=1e-3, entropy_weight=0.1),
    collect=dict(n_sample=64),
)
# Of agents that learn by themselves.
_AGENTS: dict[str, Any] = dict(
    model=dict(encoder_hidden_size_list=[64], actor_head_layer_num=0, critic_head_layer_num=0),
    learn=dict(batch_size=128, learning_rate=1e-3, entropy_weight=0.02, epoch_per_collect=4),
    collect=dict(n_sample=128),
)
_HAPPO = dict(encoder_hidden_size_list=[64], critic_hidden_size_list=[64], head_layer_num=0)
_IDQN = dict(encoder_hidden_size_list=[64], head_layer_num=0, dueling=False)
_CENTRAL: dict[str, Any] = dict(
    model=dict(actor_hidden_size_list=[64], critic_hidden_size_list=[64]),
    random_collect_size=64,
    learn=dict(update_per_collect=8, batch_size=64, learning_rate=1e-3),
    collect=dict(n_sample=16),
    other=dict(replay_buffer=dict(replay_buffer_size=5000)),
)


class Run(NamedTuple):
    """Policy and its settings."""

    policy: str
    settings: dict[str, Any]


# By the name that a table shows.
RUNS: dict[str, Run] = {
    "vdn": Run("vdn", _VALUES),
    "qmix": Run("qmix", _VALUES),
    "cw_qmix": Run("wqmix", deep_merge(_VALUES, dict(learn=dict(weighting="centrally")))),
    "ow_qmix": Run("wqmix", _VALUES),
    "qtran": Run("qtran", _VALUES),
    "coma": Run("coma", _ACTORS),
    "idqn": Run("idqn", {**_VALUES, "model": _IDQN}),
    "ippo": Run("ippo", _AGENTS),
    "mappo": Run("mappo", _AGENTS),
    "happo": Run("happo", {**_AGENTS, "model": _HAPPO}),
    "maddpg": Run("maddpg", _CENTRAL),
    # Nearly a choice: 0.1 of at most log 3.
    "masac_discrete": Run("masac_discrete", deep_merge(_CENTRAL, dict(learn=dict(target_entropy=0.1)))),
}


def play(name: str, game: str, seed: int) -> dict[str, Any]:
    """Return what a policy's last model gets when it acts greedily, and what it takes joint actions to be worth."""
    run, chosen, began = RUNS[name], GAMES[game], time.process_time()
    env = dict(chosen.env)
    kind = env.pop("type")
    cls = get_policy_cls({"type": run.policy})
    defaults = cls.default_config()
    is_on_policy = bool(defaults.on_policy)
    own = {key: value for key, value in chosen.settings.items() if key not in cls.config_fixed}
    section = deep_merge(run.settings, own) if "eps" in defaults.other else run.settings
    main = dict(
        exp_name=f"{name}_{game}_{seed}",
        env=dict(env, collector_env_num=8, evaluator_env_num=1, n_evaluator_episode=1),
        policy=deep_merge(section, dict(eval=dict(evaluator=dict(eval_freq=1_000_000)))),
    )
    module = "dizoo.multi_agent." + kind
    create: dict[str, Any] = dict(
        env=dict(type=kind, import_names=[module]), env_manager=dict(type="base"), policy=dict(type=run.policy)
    )
    train: Any = serial_pipeline_onpolicy if is_on_policy else serial_pipeline
    policy = train((main, create), seed=seed, max_env_step=chosen.env_steps)
    env_fn, _, cfgs = get_vec_env_setting({**main["env"], **create["env"]})
    with create_env_manager({"type": "base"}, [lambda: env_fn(cfgs[0])]) as manager:
        (found,) = play_episodes(manager, policy.eval_mode, 1, rng=np.random.default_rng(seed)).returns
        obs, _ = env_fn(cfgs[0]).reset(seed=seed)
    row: dict[str, Any] = {"seed": seed, "return": round(float(found), 3)}
    if game in PAYOFFS and hasattr(model := policy.get_attribute("model"), "mix"):
        row["values"] = _values(model, obs, PAYOFFS[game].shape)
    return {**row, "cpu_s": round(time.process_time() - began, 1)}


def _values(model: Any, obs: dict[str, Any], shape: tuple[int, ...]) -> list[list[float]]:
    """Return Q_tot of all joint actions of two agents."""
    one = {key: torch.as_tensor(value)[None] for key, value in obs.items()}
    with torch.no_grad():
        each = model.q(one)[0]  # [N, A]
        pairs = list(itertools.product(*map(range, shape)))
        chosen = torch.stack([torch.stack([each[0, first], each[1, second]]) for first, second in pairs])
        total = model.mix(chosen, {key: value.expand(len(pairs), *value.shape[1:]) for key, value in one.items()})
    return [[round(value, 2) for value in row] for row in total.view(shape).tolist()]


def main() -> None:
    """Play what the command line names, print a line for each game and policy, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RUNS)}; default: all")
    parser.add_argument("--games", nargs="+", choices=list(GAMES), default=list(GAMES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file; games and policies that are not played keep what it has")
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit too")
    args = parser.parse_args()
    if unknown := set(args.names) - set(RUNS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}")
    code = None
    if args.out is not None:
        try:
            code = provenance(allow_dirty=args.allow_dirty)
        except DirtyTreeError as error:
            sys.exit(f"tests.learning.matrix_games: {error}")
    out = None if args.out is None else args.out.resolve()
    report = json.loads(out.read_text()) if out is not None and out.is_file() else {}
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for game, name in itertools.product(args.games, args.names or list(RUNS)):
            runs = [play(name, game, seed) for seed in range(args.seeds)]
            row = {**(code.to_plain() if code is not None else {}), "runs": runs}
            report.setdefault(game, {"best": GAMES[game].best, "policies": {}})["policies"][name] = row
            ends = ", ".join(f"{each['return']:g}" for each in runs)
            sys.stdout.write(f"{game:13} best {GAMES[game].best:<5g} {name:9} {ends}  {runs[0].get('values') or ''}\n")
            sys.stdout.flush()
            if out is not None:
                out.write_text(json.dumps(report, indent=1) + "\n")
        os.chdir("/")


if __name__ == "__main__":
    main()
