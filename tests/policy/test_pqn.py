"""PQN: targets and updates equal slow walks, in both backends and with masks; layer normalisation in numpy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.rollout import Rollout
from ding_like.model.flat_params import FlatParams
from ding_like.model.layers import build_mlp
from ding_like.model.numpy_networks import NumpyGrad
from tests.policy.values import ACTIONS, make_policy

GAMMA, LAMBDA, LANES, STEPS = 0.9, 0.6, 3, 7


def make(**changes: Any) -> Any:
    collect = dict(q_lambda=LAMBDA, n_sample=LANES * STEPS)
    return make_policy("pqn", discount_factor=GAMMA, collect=collect, learn=dict(batch_size=8, **changes))


def roll(*, is_masked: bool = False) -> Rollout:
    """Return rows of three lanes whose episodes are terminated and truncated here and there."""
    rng, rollout = np.random.default_rng(0), Rollout(LANES)

    def observation(name: str) -> dict[str, Any]:
        obs = rng.normal(size=(LANES, 3)).astype(np.float32)
        mask = rng.random((LANES, ACTIONS)) < 0.5
        mask[1:, 0] = True  # lane 0 may be allowed nothing: what follows is worth 0
        return {f"{name}/board": obs, f"{name}/action_mask": mask} if is_masked else {name: obs}

    obs = observation("obs")
    for _ in range(STEPS):
        terminated = rng.random(LANES) < 0.2
        truncated = (rng.random(LANES) < 0.3) & ~terminated
        after = observation("next_obs")
        flags = dict(terminated=terminated, truncated=truncated, lane=np.arange(LANES))
        reward = rng.normal(size=LANES).astype(np.float32)
        action = rng.integers(0, ACTIONS, LANES)
        rollout.append({**obs, **after, **flags, "action": action, "reward": reward})
        begun = observation("obs")  # what an episode that has ended was followed by is not what the next begins with
        over = terminated | truncated
        obs = {
            name: np.where(over[:, None], column, after[name.replace("obs", "next_obs", 1)])
            for name, column in begun.items()
        }
    return rollout


def slow_returns(policy: Any, rollout: Rollout) -> list[float]:
    """Return the lambda-returns of the docstring, lane by lane from its end, in float64."""
    model, columns = copy.deepcopy(policy.get_attribute("model")).double(), rollout.columns()

    def value(name: str, row: int) -> float:
        is_dict = f"{name}/board" in columns
        obs = torch.tensor(columns[f"{name}/board" if is_dict else name][row], dtype=torch.float64)[None]
        values = model.q(obs)[0].tolist()
        legal = columns[f"{name}/action_mask"][row] if is_dict else [True] * ACTIONS
        return max((each for each, may in zip(values, legal, strict=True) if may), default=0.0)

    found = [0.0] * len(rollout)
    for lane in range(LANES):
        rows = np.flatnonzero(columns["lane"] == lane).tolist()
        following: float | None = None  # the return of the row after, of the same episode
        for row in reversed(rows):
            if columns["terminated"][row]:
                after = 0.0
            elif columns["truncated"][row] or following is None:
                after = value("next_obs", row)
            else:
                after = (1 - LAMBDA) * value("next_obs", row) + LAMBDA * following
            found[row] = following = float(columns["reward"][row]) + GAMMA * after
    return found


@pytest.mark.parametrize("is_masked", [False, True])
def test_targets_are_the_lambda_returns_of_a_slow_walk(is_masked: bool) -> None:
    policy, rollout = make(), roll(is_masked=is_masked)

    batch, kept = policy.segment(rollout)

    assert rollout.columns()["terminated"].any() and rollout.columns()["truncated"].any()
    np.testing.assert_allclose(batch["return_"], slow_returns(policy, rollout), rtol=1e-5, atol=1e-6)
    assert not kept.any() and "advantage" not in batch.columns


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("is_masked", [False, True])
def test_each_row_is_learned_from_once_an_epoch_by_the_squared_error(is_masked: bool, backend: str) -> None:
    policy = make(backend=backend, epoch_per_collect=3)
    batch, _ = policy.segment(roll(is_masked=is_masked))
    seen = []

    for minibatch in policy.minibatches(batch, np.random.default_rng(0)):
        model = copy.deepcopy(policy.get_attribute("model")).double()
        obs = np.asarray(minibatch["obs/board" if is_masked else "obs"])
        action, return_ = (torch.as_tensor(np.asarray(minibatch[name])) for name in ("action", "return_"))
        chosen = model.q(torch.tensor(obs, dtype=torch.float64)).gather(1, action[:, None])[:, 0]
        loss = ((chosen - return_.double()) ** 2).mean()
        gradient = torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(model.parameters()))])
        info, priority = policy.grad(minibatch)
        assert priority is None and float(info["total_loss"]) == pytest.approx(loss.item(), rel=1e-5)
        torch.testing.assert_close(policy._params.grad_vector.double(), gradient, rtol=1e-4, atol=1e-5)
        policy.apply()
        seen += return_.tolist()

    assert sorted(seen) == sorted(3 * batch["return_"].tolist())


def test_layer_normalisation_by_hand_is_that_of_torch() -> None:
    torch.manual_seed(0)
    network = build_mlp(5, [8, 6], norm_type="LN", activation="tanh")
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    params, obs, slope = FlatParams(network), torch.randn(4, 5), torch.randn(4, 6)
    output = network(obs)
    params.backward((output * slope).sum())
    expected = params.grad_vector.clone()
    by_hand = NumpyGrad(network, params)

    found = by_hand.forward(obs.numpy())
    params.grad_vector.zero_()
    by_hand.backward(slope.numpy())

    np.testing.assert_allclose(found, output.detach().numpy(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(params.grad_vector, expected, rtol=1e-4, atol=1e-5)
