"""Never Give Up's bonus against its algorithm step by step, with the memory of each row and the running moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from tests.reward_model.bonus import Seen, assert_learners_stay_equal, assert_round_trip, make
from tests.reward_model.rows import BOX, DISCRETE, rows_of, sequences_of, step

K = 3


def features(model: Any, obs: np.ndarray) -> list[float]:
    with torch.no_grad():
        return model.module["inverse"].features(torch.tensor(obs)[None])[0].double().tolist()  # type: ignore[no-any-return]


def nearest(model: Any, batch: TransitionBatch, row: int, step: int) -> list[float]:
    """Return the squared distances of what step `step` leads to, to its nearest neighbours before it in the row."""
    here, before = features(model, batch["obs"][row, step + 1]), batch["obs"][row, : step + 1]
    distances = []
    for each in before:
        distances.append(sum((a - b) ** 2 for a, b in zip(here, features(model, each), strict=True)))
    return sorted(distances)[:K]


def slow_bonus(model: Any, batch: TransitionBatch, mean: float, row: int, step: int) -> float:
    """Return the bonus of a step as algorithm 1 and equation 1 say."""
    cfg = model._cfg
    similarity = 0.0
    for distance in nearest(model, batch, row, step):
        relative = max(distance / mean - cfg.cluster_distance, 0.0)
        similarity += cfg.kernel_epsilon / (relative + cfg.kernel_epsilon)
    s = math.sqrt(similarity) + cfg.pseudo_count
    episodic = 0.0 if s > cfg.max_similarity else 1 / s
    moments = model.module["distillation"].moments
    with torch.no_grad():
        error = float(model.module["distillation"](torch.tensor(batch["obs"][row, step + 1])[None]))
    alpha = 1 + (error - float(moments.mean)) / float(moments.std)
    return episodic * min(max(alpha, 1.0), cfg.max_lifelong)


def ngu(**changes: Any) -> Any:
    return make(
        "ngu", **{**dict(num_neighbors=K, cluster_distance=0.02, max_lifelong=1.5, kernel_epsilon=0.01), **changes}
    )


def test_the_bonus_equals_the_algorithm_step_by_step() -> None:
    model, distances = ngu(max_similarity=1.5, update_per_collect=0), Seen()
    for number in range(2):
        batch = sequences_of(number, rows=4)
        for row, at in np.argwhere(batch["mask"]):
            distances.add(np.array(nearest(model, batch, row, at)))

        found = step(model, batch)["reward"] - batch["reward"]

        expected = np.zeros_like(found)
        for row, at in np.argwhere(np.arange(found.shape[1]) < batch["num_steps"][:, None]):
            expected[row, at] = slow_bonus(model, batch, distances.mean, row, at)
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5)
        # Some are as before in their episode, some are not; some are new at all.
        assert (expected == 0).any() and expected.max() > 3


def test_the_lifelong_factor_lies_between_1_and_its_limit() -> None:
    model, batch = ngu(max_lifelong=1.2), sequences_of()
    step(model, batch)
    transitions = model.lay_out(batch)

    with torch.no_grad():
        factor = model.rewards(transitions) / model.episodic(transitions)

    factor = factor[factor.isfinite()]
    assert factor.min() == pytest.approx(1.0) and factor.max() == pytest.approx(1.2)


def test_an_observation_that_comes_again_has_a_small_bonus() -> None:
    model, batch = ngu(), sequences_of(rows=1, steps=8, burn_in=0)
    obs = batch["obs"].copy()
    obs[0, 4:7] = obs[0, 1]  # steps 3 to 5 lead to where step 0 led to
    found = step(model, batch.with_columns(obs=obs))["reward"] - batch["reward"]

    assert found[0, 3:6].max() < 0.5 * found[0, 0]


def test_losses_are_those_of_both_models_over_steps_that_are_learned_from() -> None:
    model, batch = ngu(), sequences_of()
    model.collect(batch)
    transitions = model._collected

    loss, info = model.update(transitions)

    assert len(transitions) == batch["mask"].sum()
    inverse, distances = 0.0, 0.0
    for row, at in np.argwhere(batch["mask"]):
        pair = [features(model, batch["obs"][row, at + side]) for side in (0, 1)]
        with torch.no_grad():
            network = model.module["inverse"]
            logits = network.head(network.main(torch.tensor([pair[0] + pair[1]]).float()))[0].tolist()
            distances += float(model.module["distillation"](torch.tensor(batch["obs"][row, at + 1])[None]))
        inverse -= logits[batch["action"][row, at]] - math.log(sum(math.exp(each) for each in logits))
    count = batch["mask"].sum()
    assert float(info["inverse_loss"]) == pytest.approx(inverse / count, rel=1e-4)
    assert float(info["lifelong_loss"]) == pytest.approx(distances / count, rel=1e-4)
    assert float(loss.detach()) == pytest.approx((inverse + distances) / count, rel=1e-4)


def test_continuous_actions_and_rows_shorter_than_k_have_a_bonus() -> None:
    model = make("ngu", BOX, num_neighbors=10)

    found = step(model, sequences_of(sizes=BOX, steps=4))

    assert np.isfinite(found["reward"]).all()


def test_learners_stay_equal_and_a_model_goes_on_exactly_from_its_state() -> None:
    assert_learners_stay_equal("ngu", sequences_of)
    assert_round_trip("ngu", sequences_of)


def test_single_transitions_are_a_memory_of_one() -> None:
    found = step(make("ngu", DISCRETE), rows_of())

    assert np.isfinite(found["reward"]).all()
