"""Two states and a data set without the actions that look best: what each policy learns of them, beside the truth.

python -m tests.learning.two_states [--out docs/reports/two_states.json]

State 0 leads to 1 and 1 to 0, whatever the action, for ever; discount 0.9. Actions of the data lie in [-1, 0], where
the reward is the action; beyond, it falls four times as fast as it rose. What a critic has seen, carried on in a
straight line, promises 1 a step at action 1: a value of 10, and the truth is -40. The best is 0, at the edge of the
data. Of four discrete actions the data have two, which cost 2 and 1 a step; the others cost 4. A network begins with
values near 0, better than all that the data can show.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.demonstrations import Demonstrations
from ding_like.pipeline.process import training_process
from ding_like.policy import create_policy, get_policy_cls

GAMMA, STEPS, EPISODES = 0.9, 10, 100
COSTS = np.float32([2.0, 1.0, 4.0, 4.0])
STATES = np.eye(2, dtype=np.float32)

_QAC: dict[str, Any] = dict(actor_head_hidden_size=32, critic_head_hidden_size=32)
_RATES: dict[str, Any] = dict(learning_rate=1e-3, target_theta=0.02)
_Q: dict[str, Any] = dict(encoder_hidden_size_list=[32, 32], head_layer_num=0, dueling=False)
_COPIES: dict[str, Any] = dict(learning_rate=1e-3, target_update_freq=20)
# Settings of policies: a new one is one line here, and a name in test_two_states.py.
BOX: dict[str, dict[str, Any]] = {
    "sac": dict(model=_QAC, learn=_RATES),
    "td3": dict(model=_QAC, learn=_RATES),
    "cql": dict(model=_QAC, learn={**_RATES, "min_q_weight": 5.0}),
    "bcq": dict(model=dict(**_QAC, vae_hidden_dims=[32]), learn=_RATES),
    "td3_bc": dict(model=_QAC, learn={**_RATES, "alpha": 0.5}),  # by its default, 2.5, it leaves the data here
    "iql": dict(model=_QAC, learn=_RATES),
}
DISCRETE: dict[str, dict[str, Any]] = {
    "dqn": dict(model=_Q, learn=_COPIES),
    "qrdqn": dict(model=_Q, learn=_COPIES),
    "discrete_cql": dict(model=_Q, learn=_COPIES),
    "discrete_bcq": dict(model=_Q, learn=_COPIES),
}


class Found(NamedTuple):
    """What a policy does in state 0, what it takes that to be worth, and what it is worth."""

    action: float
    estimate: float
    truth: float


def reward_of(action: np.ndarray) -> np.ndarray:
    """Return the rewards of actions: continuous ones [..., 1] or discrete ones [...]."""
    if action.dtype.kind == "f":
        return np.where(action <= 0, action, -4.0 * action)[..., 0].astype(np.float32)
    return -COSTS[action]


def data(*, box: bool, seed: int = 0) -> Demonstrations:
    """Return episodes of a behaviour policy that takes actions of a part of their range."""
    rng, rows = np.random.default_rng(seed), STEPS * EPISODES
    step = np.arange(rows) % STEPS
    action = rng.uniform(-1.0, 0.0, (rows, 1)).astype(np.float32) if box else rng.integers(0, 2, rows)
    columns = {
        "obs": STATES[step % 2],
        "action": action,
        "reward": reward_of(action),
        "next_obs": STATES[(step + 1) % 2],
        "terminated": np.zeros(rows, bool),
        "truncated": step == STEPS - 1,
        "lane": np.zeros(rows, np.int64),
        "episode_id": np.arange(rows) // STEPS,
        "step": step,
    }
    return Demonstrations(columns, {})


def learn(name: str, *, updates: int = 4000, seed: int = 0) -> Found:
    """Train a policy on the data and compare what it takes its actions to be worth with the truth."""
    torch.manual_seed(seed)
    box = name in BOX
    space = dict(action_space="continuous", action_low=[-1.0], action_high=[1.0]) if box else {}
    own = dict(type=name, discount_factor=GAMMA, model=dict(obs_shape=2, action_shape=1 if box else len(COSTS)))
    settings = deep_merge(BOX[name] if box else DISCRETE[name], {**own, **space})
    policy: Any = create_policy(deep_merge(to_plain(get_policy_cls({"type": name}).default_config()), settings))
    rows, _ = policy.segment(data(box=box, seed=seed).rollout())
    rng = np.random.default_rng(seed)
    with training_process():
        for _ in range(updates):
            policy.grad(rows.take(rng.integers(0, len(rows), 64)))
            policy.apply()
    where = dict(lanes=np.arange(2), is_first=np.ones(2, bool), rng=rng)
    action = policy.eval_mode.actor.act(STATES, **where)["action"]
    with torch.no_grad():
        if box:
            values = policy._critic.network(torch.from_numpy(STATES), torch.from_numpy(action)).amin(dim=0)
        else:
            values = policy._family.expected(policy._online.tensor(STATES))[torch.arange(2), torch.from_numpy(action)]
    reward = reward_of(action)
    return Found(float(action.flat[0]), float(values[0]), float((reward[0] + GAMMA * reward[1]) / (1 - GAMMA**2)))


def main() -> None:
    """Print a table of all policies, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file for what is found")
    args = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for name in (*BOX, *DISCRETE):
        found[name] = {key: round(value, 2) for key, value in learn(name)._asdict().items()}
        print(f"{name:14} {found[name]}", flush=True)
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
