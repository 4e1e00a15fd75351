"""What the tests of PPO, A2C and PG share: small policies, made-up rows, a bandit."""

import copy
import math

import numpy as np
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.policy.ppo import PPOPolicy

SMALL = dict(encoder_hidden_size_list=[8, 8], activation="tanh", actor_head_layer_num=0, critic_head_layer_num=0)
KINDS = {
    "one": dict(action_space="discrete", model=dict(action_shape=3)),
    "several": dict(action_space="discrete", model=dict(action_shape=[3, 2])),
    "clipped": dict(
        action_space="continuous", action_low=[-2.0, 0.0], action_high=[2.0, 1.0], model=dict(action_shape=2)
    ),
    "squashed": dict(
        action_space="continuous",
        action_bound="tanh",
        action_low=[-2.0, 0.0],
        action_high=[2.0, 1.0],
        model=dict(action_shape=2, sigma_type="conditioned"),
    ),
}


def make_policy(cls=PPOPolicy, /, *, network=None, **changes):
    torch.manual_seed(0)
    cfg = to_plain(cls.default_config())
    cfg["model"] = dict(obs_shape=3, action_shape=3, **SMALL)
    return cls(deep_merge(cfg, changes), model=network)


def act(policy, obs, *, seed: int = 0):
    rows = len(obs["board"] if isinstance(obs, dict) else obs)
    return policy.collect_mode.actor.act(
        obs, lanes=np.arange(rows), is_first=np.zeros(rows, bool), rng=np.random.default_rng(seed)
    )


def make_batch(policy, rows: int = 24, *, seed: int = 0, is_masked: bool = False) -> TransitionBatch:
    """Return rows of the policy's own actions, with advantages and returns made up."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(rows, 3)).astype(np.float32)
    columns = {"obs": obs}
    if is_masked:
        mask = rng.random((rows, 3)) < 0.5
        mask[:, 1] = True
        obs = {"board": obs, "action_mask": mask.astype(np.int8)}
        columns = {f"obs/{name}": column for name, column in obs.items()}
    made_up = {name: rng.normal(size=rows).astype(np.float32) for name in ("advantage", "return_", "value")}
    return TransitionBatch({**columns, **act(policy, obs, seed=seed), **made_up})


def make_rollout(policy, steps: int = 6, lanes: int = 4, *, seed: int = 0) -> Rollout:
    rng, rollout = np.random.default_rng(seed), Rollout(lanes)
    obs = rng.normal(size=(lanes, 3)).astype(np.float32)
    for step in range(steps):
        terminated = rng.random(lanes) < 0.2
        truncated = (rng.random(lanes) < 0.2) & ~terminated
        next_obs = rng.normal(size=(lanes, 3)).astype(np.float32)
        flags = {"terminated": terminated, "truncated": truncated, "lane": np.arange(lanes)}
        reward = rng.normal(size=lanes).astype(np.float32)
        rollout.append({"obs": obs, **act(policy, obs, seed=step), "next_obs": next_obs, "reward": reward, **flags})
        # What an episode that has ended was followed by is not what the next begins with.
        first = rng.normal(size=(lanes, 3)).astype(np.float32)
        obs = np.where((terminated | truncated)[:, None], first, next_obs)
    return rollout


def train(policy, batch, *, seed: int = 0):
    infos = []
    for minibatch in policy.minibatches(batch, np.random.default_rng(seed)):
        info, _ = policy.grad(minibatch)
        policy.apply()
        infos.append({name: float(value) for name, value in info.items()})
    return infos


@torch.no_grad()
def evaluated(policy, batch):
    """Yield (row, log probability of its action, entropy, value) in float64, with memory where rows have a time."""
    model, state = copy.deepcopy(policy.get_attribute("model")).double(), {}
    for row in batch:
        obs = torch.tensor(row["obs"], dtype=torch.float64)[None]
        if "time" not in batch.columns:
            output, value = model.actor_critic(obs)
        else:
            if row["time"] == 0:
                state = {name: torch.tensor(row[f"state/{name}"])[None].double() for name in model.initial_state}
            output, value, state = model.actor_critic(obs[None], state)
            output = output[0]
        action = torch.tensor(row[policy._family.column])[None]
        log_prob, entropy = (float(x) for x in policy._family.log_prob_and_entropy(output, action))
        yield row, log_prob, entropy, value.item()


def slow_loss(policy, batch) -> float:
    """Go row by row, as the papers say: the loss of A2C, or the clipped one of PPO."""
    learn, is_ppo = policy._cfg.learn, isinstance(policy, PPOPolicy)
    scale = policy._returns.now.std if learn.get("value_norm") else 1.0
    advantage = batch["advantage"].astype(float)
    if learn.adv_norm is True:
        advantage = (advantage - advantage.mean()) / advantage.std()
    terms = []
    for each, (row, log_prob, entropy, value) in zip(advantage, evaluated(policy, batch), strict=True):
        gain = log_prob * each
        if is_ppo:
            ratio = math.exp(log_prob - float(row["log_prob"]))
            gain = min(ratio * each, min(max(ratio, 0.8), 1.2) * each)
            if learn.dual_clip is not None and each < 0:
                gain = max(gain, learn.dual_clip * each)
            gain -= learn.kl_beta * (ratio - 1 - math.log(ratio))
        target, old = float(row["return_"]) / scale, float(row["value"]) / scale
        error = (value - target) ** 2
        if is_ppo and learn.value_clip is not None:
            limit = learn.value_clip / scale
            error = max(error, (old + min(max(value - old, -limit), limit) - target) ** 2)
        terms.append(-gain + learn.value_weight * error - learn.entropy_weight * entropy)
    return float(np.mean(terms))


def play_bandit(policy, turns: int) -> list[float]:
    """Train on a bandit whose best action is the first of each choice, or a raw 0.5; return the mean reward a turn."""
    rng, rewards = np.random.default_rng(0), []
    for turn in range(turns):
        obs = rng.normal(size=(128, 3)).astype(np.float32)
        columns = act(policy, obs, seed=turn)
        chosen = columns["action_raw" if "action_raw" in columns else "action"].reshape(128, -1)
        reward = -np.abs(chosen - (0.5 if chosen.dtype.kind == "f" else 0)).sum(axis=1).astype(np.float32)
        flags = {"terminated": np.ones(128, bool), "truncated": np.zeros(128, bool), "lane": np.arange(128)}
        rollout = Rollout(128)
        rollout.append({"obs": obs, "next_obs": obs, **columns, "reward": reward, **flags})
        train(policy, policy.segment(rollout)[0], seed=turn)
        rewards.append(float(reward.mean()))
    return rewards


def moved(policy):
    """Move the policy away from the one that acted."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.get_attribute("model").parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return policy
