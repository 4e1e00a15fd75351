"""PDEIL: densities and rewards against a walk over rows, with densities of scipy's kind written out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ding_like.errors import ConfigError
from ding_like.reward_model.base import Sizes
from tests.reward_model.imitation import SIZES, expert_of, make
from tests.reward_model.rows import DISCRETE, one_hot, rows_of, step

ALPHA = 0.3
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def density(x: np.ndarray, rows: np.ndarray) -> float:
    """Return the density at x [F] of the normal distribution with mean and covariance of rows [N, F]."""
    mean = rows.mean(axis=0)
    covariance = sum(np.outer(row - mean, row - mean) for row in rows) / len(rows) + 1e-3 * np.eye(len(x))
    apart = x - mean
    exponent = -0.5 * apart @ np.linalg.inv(covariance) @ apart
    return float(math.exp(exponent) / math.sqrt((2 * math.pi) ** len(x) * np.linalg.det(covariance)))


def slow_rewards(sizes: Sizes, policy_obs: np.ndarray, batch: object) -> list[float]:
    """Return the reward of each row."""
    expert = expert_of(sizes)
    centre, width = (getattr(expert["obs"].astype(np.float64), name)(axis=0) for name in ("mean", "std"))
    obs = (expert["obs"] - centre) / width
    policy = (policy_obs - centre) / width
    actions = np.stack([one_hot(action, sizes).numpy() for action in expert["action"]]).astype(np.float64)
    found = []
    for row in batch:  # type: ignore[attr-defined]
        s = (row["obs"] - centre) / width
        if sizes.is_discrete:
            of_action, start = 1.0, 0
            for choice, number in zip(np.atleast_1d(row["action"]), sizes.choices, strict=True):
                joint = []
                for k in range(start, start + number):
                    chosen = obs[actions[:, k] == 1]
                    joint.append(len(chosen) * density(s, chosen))
                of_action *= joint[int(choice)] / sum(joint)
                start += number
        else:
            low, high = actions.mean(axis=0), actions.std(axis=0)
            pairs = np.concatenate([obs, (actions - low) / high], axis=1)
            of_action = density(np.concatenate([s, (row["action"] - low) / high]), pairs) / density(s, obs)
        of_expert = density(s, obs)
        found.append(of_action * of_expert / (ALPHA * of_expert + (1 - ALPHA) * density(s, policy)))
    return found


@every_size
def test_rewards_are_those_of_a_walk_over_rows(sizes: Sizes, tmp_path: Path) -> None:
    model = make("pdeil", tmp_path, sizes, alpha=ALPHA, window=1000)
    first, second = rows_of(1, sizes), rows_of(2, sizes)
    step(model, first)
    found = step(model, second)["reward"]
    policy_obs = np.concatenate([first["obs"], second["obs"]])
    np.testing.assert_allclose(found, slow_rewards(sizes, policy_obs, second), rtol=1e-4)


def test_the_policys_density_forgets_what_is_beyond_the_window(tmp_path: Path) -> None:
    model = make("pdeil", tmp_path, alpha=ALPHA, window=12)
    step(model, rows_of(1))
    last = rows_of(2)
    found = step(model, last)["reward"]
    np.testing.assert_allclose(found, slow_rewards(DISCRETE, last["obs"], last), rtol=1e-4)
    half = make("pdeil", tmp_path, alpha=ALPHA, window=18)  # 6 of the first 12 rows' weight stay
    step(half, rows_of(1))
    step(half, last)
    assert float(half.module["policy_obs"].weight) == pytest.approx(18)


def test_an_action_that_the_expert_never_takes_gives_nothing(tmp_path: Path) -> None:
    sizes = Sizes(DISCRETE.obs_shape, 6, True)
    model = make("pdeil", tmp_path, sizes)
    expert = expert_of(sizes)
    keep = model.expert.action[:, 5] == 0
    model.expert = model.expert.take(keep.nonzero().flatten())
    assert len(model.expert) < len(expert)
    found = step(model, rows_of(1, sizes).with_columns(action=np.full(12, 5)))["reward"]
    assert (found == 0).all()


def test_observations_that_are_no_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes observations that are vectors"):
        make("pdeil", tmp_path, Sizes([3, 8, 8], 2, True))
