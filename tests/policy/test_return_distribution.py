"""On a chain whose returns are known, algorithms that learn distributions of returns recover them.

Three states in a row, two actions. `go` pays 0 or 1, a coin each time, and moves on; `stop` pays 1/8 and ends. Behind
the third state is the end. At a discount of 1/2 always going returns 0, 0.25, ... or 1.75 from state 0, each with a
probability of 1/8. Every transition is in every batch as often as it happens, so that nothing is left to chance.

A case is a row of CASES: what is set, how the learned distributions are read, and how far they may be off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.policy import create_policy, get_policy_cls

STATES, GO, STOP = 3, 0, 1
OBS = np.eye(STATES, dtype=np.float32)
DISCOUNT, STOP_REWARD = 0.5, 0.125
# What a distribution of returns is here: values and their probabilities, [S, A, N] of all states and actions.
Distributions = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Case:
    policy: str
    settings: dict[str, Any]
    read: Callable[[Any, torch.Tensor], Distributions]  # of (the policy's model, observations [S, O])
    bar: float  # the largest Wasserstein distance
    updates: int = 2500


def categorical(model: Any, obs: torch.Tensor) -> Distributions:
    probs = model.logits(obs).softmax(-1).numpy()
    return np.broadcast_to(np.linspace(model.v_min, model.v_max, model.n_atom), probs.shape), probs


def quantiles(model: Any, obs: torch.Tensor) -> Distributions:
    values = model.quantiles(obs).numpy()
    return values, np.full(values.shape, 1.0 / values.shape[-1])


def implicit_quantiles(model: Any, obs: torch.Tensor) -> Distributions:
    """Read an IQN at the middles of 64 equal parts, more than it was trained at in an update."""
    fractions = ((torch.arange(64) + 0.5) / 64)[None]
    values = model.quantiles(obs, fractions).numpy()
    return values, np.full(values.shape, 1.0 / values.shape[-1])


def proposed_quantiles(model: Any, obs: torch.Tensor) -> Distributions:
    values, fractions = model.predict(obs)
    return values.numpy(), np.broadcast_to(fractions.widths.numpy()[:, None], values.shape)


_LEARN = dict(learning_rate=0.005, target_update_freq=20)
# All returns are atoms: what lies between two cannot be told from a bit of both.
_SUPPORT = dict(v_min=0.0, v_max=2.0, n_atom=17)
# Quantiles of Huber's loss are those of the distribution as far as kappa is small beside its width.
_KAPPA = dict(learn=dict(**_LEARN, kappa=0.01))
_IMPLICIT = dict(num_quantiles=16, quantile_embedding_size=32)
_PROPOSED = dict(learning_rate_quantile=0.005, learning_rate_fraction=1e-4, target_update_freq=20, kappa=0.01)
CASES: dict[str, Case] = {
    "c51": Case("c51", dict(learn=_LEARN, model=_SUPPORT), categorical, bar=0.02),
    "c51 autograd": Case("c51", dict(learn=dict(**_LEARN, backend="autograd"), model=_SUPPORT), categorical, bar=0.02),
    "qrdqn": Case("qrdqn", dict(**_KAPPA, model=dict(num_quantiles=32)), quantiles, bar=0.02),
    "qrdqn dueling": Case("qrdqn", dict(**_KAPPA, model=dict(num_quantiles=32, dueling=True)), quantiles, bar=0.02),
    # A smooth function of the fraction stands for steps of 1/4: a straight line through these is 1/16 off.
    "iqn": Case("iqn", dict(**_KAPPA, model=_IMPLICIT), implicit_quantiles, bar=0.08),
    "iqn autograd": Case(
        "iqn", dict(learn=dict(**_KAPPA["learn"], backend="autograd"), model=_IMPLICIT), implicit_quantiles, bar=0.08
    ),
    "fqf": Case("fqf", dict(learn=_PROPOSED, model=_IMPLICIT), proposed_quantiles, bar=0.08),
}


def known_returns(state: int, action: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (returns, their probabilities) of an action in a state, if `go` follows."""
    if action == STOP:
        return np.array([STOP_REWARD]), np.ones(1)
    coins = list(product((0.0, 1.0), repeat=STATES - state))
    returns = [sum(reward * DISCOUNT**step for step, reward in enumerate(rewards)) for rewards in coins]
    return np.array(returns), np.full(len(coins), 1.0 / len(coins))


def all_transitions() -> TransitionBatch:
    """Return every transition once: a reward of 0 and one of 1 for going, and twice the one of stopping."""
    rows = [(s, GO, reward, s == STATES - 1) for s in range(STATES) for reward in (0.0, 1.0)]
    rows += [(s, STOP, STOP_REWARD, True) for s in range(STATES)] * 2
    state, action, reward, ended = (np.array(column) for column in zip(*rows, strict=True))
    return TransitionBatch(
        {
            "obs": OBS[state],
            "action": action,
            "reward": reward.astype(np.float32),
            # Behind an end comes a state like any other, which must not count.
            "next_obs": OBS[np.minimum(state + 1, STATES - 1)],
            "terminated": ended,
            "truncated": np.zeros_like(ended),
        }
    )


def wasserstein(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the area between the two distribution functions."""
    places = np.sort(np.concatenate([one[0], other[0]]))
    below = [
        np.array([probs[values <= place].sum() for place in places[:-1]], np.float64) for values, probs in (one, other)
    ]
    return float((np.abs(below[0] - below[1]) * np.diff(places)).sum())


def trained(case: Case) -> Any:
    torch.manual_seed(0)
    defaults = to_plain(get_policy_cls({"type": case.policy}).default_config())
    model = dict(obs_shape=STATES, action_shape=2, encoder_hidden_size_list=[32])
    cfg = deep_merge(deep_merge(defaults, case.settings), dict(discount_factor=DISCOUNT, model=model))
    policy = create_policy({**cfg, "type": case.policy})
    batch = all_transitions()
    for _ in range(case.updates):
        policy.learn_mode.grad(batch)
        policy.learn_mode.apply()
    return policy


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_known_distribution_of_returns_is_recovered(name: str) -> None:
    case = CASES[name]
    policy = trained(case)

    with torch.no_grad():
        values, probs = case.read(policy.get_attribute("model"), torch.from_numpy(OBS))

    distances = {
        (state, action): wasserstein((values[state, action], probs[state, action]), known_returns(state, action))
        for state in range(STATES)
        for action in (GO, STOP)
    }
    print({place: round(distance, 4) for place, distance in distances.items()})
    assert max(distances.values()) < case.bar, distances
