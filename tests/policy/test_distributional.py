"""C51 and QR-DQN: whole updates beside slow walks over rows, in both backends; what they refuse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.policy import create_policy, get_policy_cls
from tests.config.faults import faults
from tests.policy.values import make_rows, with_masks

OBS, ACTIONS, ROWS, NUM = 4, 3, 12, 5
V_MIN, V_MAX = -2.0, 2.0
ATOMS = np.linspace(V_MIN, V_MAX, NUM).tolist()  # 1 apart
KAPPA = 0.7
MODELS: dict[str, dict[str, Any]] = {
    "c51": dict(v_min=V_MIN, v_max=V_MAX, n_atom=NUM),
    "qrdqn": dict(num_quantiles=NUM),
}


def make(name: str, *, dueling: bool = False, **settings: Any) -> Any:
    torch.manual_seed(0)
    model = dict(MODELS[name], obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[8, 8], dueling=dueling)
    cfg = deep_merge(to_plain(get_policy_cls({"type": name}).default_config()), dict(type=name, model=model))
    policy = create_policy(deep_merge(cfg, settings))
    # A target network of its own, so that mixing up the two shows.
    target = policy._target_params.data_vector  # type: ignore[attr-defined]
    target.add_(0.3 * torch.randn(target.shape, generator=torch.Generator().manual_seed(1)))
    return policy


def rows(*, masked: bool = False) -> TransitionBatch:
    batch = make_rows(ROWS, obs=OBS, actions=ACTIONS)
    return with_masks(batch, actions=ACTIONS) if masked else batch


def c51_row(chosen: Tensor, following: Tensor | None, reward: float, discount: float) -> tuple[Tensor, float]:
    """Return (cross entropy, KL divergence) of a row, atom by atom; `following` are logits, None: nothing."""
    outcomes = [(reward, 1.0)]
    if following is not None:
        outcomes = [(reward + discount * z, p) for z, p in zip(ATOMS, following.softmax(0).tolist(), strict=True)]
    target = [0.0] * NUM
    for value, prob in outcomes:
        value = min(max(value, V_MIN), V_MAX)
        below = min(int(value - V_MIN), NUM - 2)
        target[below] += prob * (ATOMS[below + 1] - value)
        target[below + 1] += prob * (value - ATOMS[below])
    cross = -sum(m * log_p for m, log_p in zip(target, chosen.log_softmax(0), strict=True))
    entropy = -sum(m * float(np.log(m)) for m in target if m > 0)
    assert isinstance(cross, Tensor)
    return cross, float(cross.detach()) - entropy


def qrdqn_row(chosen: Tensor, following: Tensor | None, reward: float, discount: float) -> tuple[Tensor, float]:
    """Return the loss of a row, twice, pair by pair; `following` are quantiles, None: nothing."""
    after = [0.0] * NUM if following is None else following.tolist()
    total = torch.zeros((), dtype=torch.float64)
    for i, value in product(range(NUM), after):
        u = reward + discount * value - chosen[i]
        size = u.abs()
        huber = 0.5 * u * u if float(size.detach()) <= KAPPA else KAPPA * (size - 0.5 * KAPPA)
        total = total + abs((i + 0.5) / NUM - float(u.detach() < 0)) * huber / NUM
    return total, float(total.detach())


def mean_of(name: str, points: Tensor) -> Tensor:
    return points.softmax(-1) @ torch.tensor(ATOMS, dtype=points.dtype) if name == "c51" else points.mean(-1)


ROW: dict[str, Callable[..., tuple[Tensor, float]]] = {"c51": c51_row, "qrdqn": qrdqn_row}


def slow_update(name: str, policy: Any, batch: TransitionBatch, *, double: bool) -> tuple[float, Tensor, list[float]]:
    """Return (weighted loss, its gradient, priorities) row by row in float64, without policy code."""
    model, target = copy.deepcopy(policy.get_attribute("model")).double(), copy.deepcopy(policy._target_model).double()
    for parameter in model.parameters():
        parameter.grad = None
    board = "/board" if "obs/board" in batch.columns else ""
    total, priorities = torch.zeros((), dtype=torch.float64), []
    for row in range(ROWS):
        obs, next_obs = (torch.from_numpy(batch[f"{key}{board}"][row]).double()[None] for key in ("obs", "next_obs"))
        with torch.no_grad():
            online, points = model.points(next_obs)[0], target.points(next_obs)[0]
        judge = mean_of(name, online if double else points).tolist()
        legal = np.flatnonzero(batch["next_obs/action_mask"][row]).tolist() if board else range(ACTIONS)
        following = None
        if not batch["terminated"][row] and len(legal):
            following = points[max(legal, key=lambda action: judge[action])]
        each, priority = ROW[name](
            model.points(obs)[0, int(batch["action"][row])],
            following,
            float(batch["reward"][row]),
            float(batch["discount"][row]),
        )
        total = total + float(batch["weight"][row]) * each / ROWS
        priorities.append(priority)
    total.backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return float(total.detach()), gradient, priorities


@pytest.mark.parametrize(
    ("dueling", "double", "masked"), [(False, True, False), (True, False, False), (True, True, True)]
)
@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("name", MODELS)
def test_an_update_equals_a_slow_walk_over_rows(
    name: str, backend: str, dueling: bool, double: bool, masked: bool
) -> None:
    learn = dict(backend=backend, **(dict(kappa=KAPPA) if name == "qrdqn" else {}))
    policy = make(name, dueling=dueling, double=double, priority=True, priority_IS_weight=True, learn=learn)
    assert (policy._by_hand is not None) == (backend == "auto")
    batch = rows(masked=masked)

    info, priority = policy.grad(batch)

    loss, gradient, priorities = slow_update(name, policy, batch, double=double)
    assert float(info["total_loss"]) == pytest.approx(loss, abs=1e-6)
    np.testing.assert_allclose(policy.grad_vectors()[0][:-1].double().numpy(), gradient.numpy(), atol=1e-6)
    np.testing.assert_allclose(priority, priorities, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_actors_play_what_is_expected_of_the_distributions(name: str) -> None:
    policy = make(name, dueling=True)
    obs = np.random.default_rng(0).normal(0.0, 5.0, size=(200, OBS)).astype(np.float32)

    columns = policy.eval_mode.actor.act(
        obs, lanes=np.arange(200), is_first=np.ones(200, bool), rng=np.random.default_rng(0)
    )

    with torch.no_grad():
        expected = mean_of(name, policy.get_attribute("model").points(torch.from_numpy(obs)))
    assert len(np.unique(columns["action"])) > 1
    assert np.array_equal(columns["action"], expected.argmax(1).numpy())


class Bare(nn.Module):
    """Model without attributes that describe its output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(OBS, ACTIONS * NUM)


@pytest.mark.parametrize(("name", "lacks"), [("c51", r"v_min\n  v_max\n  n_atom"), ("qrdqn", "num_quantiles")])
def test_a_model_that_does_not_say_what_its_output_is_is_refused(name: str, lacks: str) -> None:
    cls = get_policy_cls({"type": name})

    with pytest.raises(ConfigError, match=rf"(?s)Bare does not have:.*{lacks}"):
        cls(deep_merge(to_plain(cls.default_config()), {}), model=Bare())


@pytest.mark.parametrize(
    ("name", "learn", "key"),
    [
        ("c51", dict(loss="huber"), "learn.loss"),
        ("qrdqn", dict(loss="huber"), "learn.loss"),
        ("qrdqn", dict(kappa=0.0), "learn.kappa"),
    ],
)
def test_keys_without_effect_or_sense_are_named(name: str, learn: dict[str, Any], key: str) -> None:
    cls = get_policy_cls({"type": name})

    found = dict(faults(cls, deep_merge(to_plain(cls.default_config()), dict(learn=learn))))

    assert list(found) == [key]
