"""What the tests of DDPG, TD3 and SAC share: small policies and made-up rows."""

import copy
from types import SimpleNamespace

import numpy as np
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.process import training_process
from ding_like.policy import get_policy_cls
from ding_like.policy.offpolicy import OffPolicyActorCritic

# Bounds that differ in width and centre, so that a forgotten scaling shows.
LOW, HIGH = np.array([-2.0, 0.0]), np.array([2.0, 0.5])
CENTRE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2
GAMMA = 0.9


def make_policy(name: str, **changes) -> OffPolicyActorCritic:
    """Return a small policy whose targets differ from its networks."""
    torch.manual_seed(0)
    cls = get_policy_cls({"type": name})
    cfg = deep_merge(
        to_plain(cls.default_config()),
        dict(
            discount_factor=GAMMA,
            action_low=LOW.tolist(),
            action_high=HIGH.tolist(),
            model=dict(obs_shape=3, action_shape=2, actor_head_hidden_size=8, critic_head_hidden_size=8),
            learn=dict(target_theta=0.25),
        ),
    )
    policy = cls(deep_merge(cfg, changes))
    for network in policy._networks().values():
        if network.target is not None:
            network.target_params.data_vector.add_(0.1 * torch.randn_like(network.target_params.data_vector))
    return policy


def make_batch(rows: int = 16, *, seed: int = 0, **columns) -> TransitionBatch:
    """Return rows with actions in the env's units; some are terminated, others truncated."""
    rng = np.random.default_rng(seed)
    made = {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "next_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "action": rng.uniform(LOW, HIGH, (rows, 2)).astype(np.float32),
        "reward": rng.normal(size=rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.3,
        "truncated": rng.random(rows) < 0.3,
    }
    return TransitionBatch({**made, **columns})


# Variants of rows and settings that every loss must get right: (columns to add, settings to change).
CASES = {
    "one step": ({}, {}),
    "n steps": ({"discount": np.random.default_rng(1).choice([0.9, 0.81, 0.729], 16).astype(np.float32)}, {}),
    "weights": ({"weight": np.linspace(0.0, 2.0, 16, dtype=np.float32)}, {"priority_IS_weight": True}),
    "ignore_done": ({}, {"learn": {"ignore_done": True}}),
}


def tensors(row) -> SimpleNamespace:
    """Return one row as float64 tensors of one row each, its action scaled to [-1, 1]."""
    return SimpleNamespace(
        obs=torch.tensor(row["obs"], dtype=torch.float64)[None],
        next_obs=torch.tensor(row["next_obs"], dtype=torch.float64)[None],
        action=torch.tensor((row["action"].astype(np.float64) - CENTRE) / HALF)[None],
    )


def double(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy in float64, which a float32 result is held against."""
    return copy.deepcopy(module).double()


def td_target(row, next_value: float, *, ignore_done: bool) -> float:
    """Return reward plus what follows, unless the episode is over."""
    if row["terminated"] and not ignore_done:
        return float(row["reward"])
    return float(row["reward"]) + float(row.get("discount", GAMMA)) * next_value


def peek_noise(policy: OffPolicyActorCritic, *shape: int) -> torch.Tensor:
    """Return the noise that the policy draws next, without drawing it."""
    generator = torch.Generator()
    generator.set_state(policy._noise.state)
    return torch.randn(shape, generator=generator).double()


def train(policy: OffPolicyActorCritic, batches) -> None:
    for batch in batches:
        policy.grad(batch)
        policy.apply()


def flat_state(policy: OffPolicyActorCritic) -> list[torch.Tensor]:
    """Return every vector that training changes."""
    vectors = []
    for network in policy._networks().values():
        vectors += [network.params.data_vector, *network.optimizer.state_dict()["moments"]]
        vectors += [] if network.target is None else [network.target_params.data_vector]
    return [vector.clone() for vector in vectors]


def act(actor, obs, *, rng=None, **setting):
    rows = len(obs)
    rng = np.random.default_rng(0) if rng is None else rng
    columns = actor.act(obs, lanes=np.arange(rows), is_first=np.zeros(rows, bool), rng=rng, **setting)
    return columns["action"]


def push_the_right_way(name: str, **learn) -> float:
    """Train on rewards for pushing dimension 0 the way obs[0] points; return the share of states where it does."""
    policy = make_policy(name, learn=learn, model=dict(actor_head_hidden_size=32, critic_head_hidden_size=32))
    with training_process():
        for seed in range(150):
            batch = make_batch(64, seed=seed, terminated=np.ones(64, bool))
            push = (batch["action"][:, 0] - CENTRE[0]) / HALF[0]
            train(policy, [batch.with_columns(reward=(np.sign(batch["obs"][:, 0]) * push).astype(np.float32))])
    obs = make_batch(200, seed=1000)["obs"]
    pushes = (act(policy.eval_mode.actor, obs)[:, 0] - CENTRE[0]) / HALF[0]
    return float((np.sign(obs[:, 0]) * pushes > 0.5).mean())
