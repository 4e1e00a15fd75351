"""Intrinsic curiosity: losses and bonus against slow sums over transitions, of discrete and continuous actions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.reward_model.base import Sizes
from tests.reward_model.bonus import assert_learners_stay_equal, assert_round_trip, make
from tests.reward_model.rows import BOX, DISCRETE, SEVERAL, one_hot, rows_of, sequences_of, step


def slow_losses(model: Any, rows: Any, row: int, sizes: Sizes) -> tuple[float, float]:
    """Return (L_I, L_F) of one transition."""
    networks, action = model.module, one_hot(rows["action"][row], sizes)
    with torch.no_grad():
        phi, after = (networks.inverse.features(torch.tensor(rows[name][row])[None])[0] for name in ("obs", "next_obs"))
        out = networks.inverse.head(networks.inverse.main(torch.cat([phi, after])[None]))[0].tolist()
        foreseen = networks.forward_head(networks.forward_main(torch.cat([phi, action])[None]))[0]
    forward = sum((float(a) - float(b)) ** 2 for a, b in zip(foreseen, after, strict=True)) / 2
    if not sizes.is_discrete:
        return sum((a - float(b)) ** 2 for a, b in zip(out, action, strict=True)) / 2, forward
    inverse, start = 0.0, 0
    for choice, number in zip(np.atleast_1d(rows["action"][row]), sizes.choices, strict=True):
        logits = out[start : start + number]
        inverse -= logits[int(choice)] - math.log(sum(math.exp(each) for each in logits))
        start += number
    return inverse, forward


@pytest.mark.parametrize("sizes", [DISCRETE, SEVERAL, BOX], ids=["discrete", "several", "box"])
def test_losses_and_bonus_equal_slow_sums(sizes: Sizes) -> None:
    model, rows = make("icm", sizes, beta=0.3, intrinsic_reward_weight=0.7), rows_of(sizes=sizes)
    each = np.array([slow_losses(model, rows, row, sizes) for row in range(len(rows))])

    loss, info = model.update(model.lay_out(rows))
    found = model.estimate(rows)

    inverse, forward = each.mean(axis=0)
    assert float(loss.detach()) == pytest.approx(0.7 * inverse + 0.3 * forward, rel=1e-5)
    assert float(info["inverse_loss"]) == pytest.approx(inverse, rel=1e-5)
    assert float(info["forward_loss"]) == pytest.approx(forward, rel=1e-5)
    np.testing.assert_allclose(found["reward"], rows["reward"] + 0.7 * each[:, 1], rtol=1e-5)


def test_the_gradient_goes_through_the_features_of_both_models() -> None:
    for beta, silent in ((0.0, "forward_head"), (1.0, "inverse.head")):
        model = make("icm", beta=beta)
        model.update(model.lay_out(rows_of()))[0].backward()
        moved = {name for name, each in model.module.named_parameters() if each.grad.abs().sum() > 0}

        assert any(name.startswith("inverse.features") for name in moved)
        assert not any(name.startswith(silent) for name in moved)


def test_what_is_foreseen_has_no_bonus() -> None:
    model = make("icm", update_per_collect=400, learning_rate=1e-2, intrinsic_reward_type="assign")
    known, other = rows_of(0), rows_of(1)
    model.collect(known)
    model.train()

    bonus = [model.estimate(each)["reward"].mean() for each in (known, other)]

    assert bonus[1] > 5 * bonus[0]


def test_steps_beyond_an_episode_have_no_bonus_and_are_not_learned_from() -> None:
    model, batch = make("icm", intrinsic_reward_type="assign"), sequences_of()

    found = step(model, batch)["reward"]

    beyond = np.arange(found.shape[1]) >= batch["num_steps"][:, None]
    assert (found[beyond] == 0).all() and (found[~beyond] > 0).all()
    assert len(model._collected) == batch["mask"].sum()


def test_learners_stay_equal_and_a_model_goes_on_exactly_from_its_state() -> None:
    assert_learners_stay_equal("icm", rows_of)
    assert_round_trip("icm", rows_of)


def test_the_last_action_and_reward_are_not_in_what_is_new() -> None:
    sizes = Sizes({"obs": 3, "prev_action": 4, "prev_reward_extrinsic": 1}, 4, True)
    rows = rows_of()
    last = {
        "prev_action": np.eye(4, dtype=np.float32)[rows["action"]],
        "prev_reward_extrinsic": rows["reward"][:, None],
    }
    columns = {name: rows[name] for name in ("action", "reward", "terminated")}
    for prefix in ("obs", "next_obs"):
        columns |= {f"{prefix}/obs": rows[prefix], **{f"{prefix}/{name}": column for name, column in last.items()}}
    batch = TransitionBatch(columns)
    other = batch.with_columns(**{"next_obs/prev_action": 1 - columns["next_obs/prev_action"]})
    for kind in ("rnd", "icm"):
        model = make(kind, sizes)
        model.collect(batch)

        np.testing.assert_array_equal(model.estimate(batch)["reward"], model.estimate(other)["reward"])
