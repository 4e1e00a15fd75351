"""Random network distillation: bonus and loss against slow sums, moments, types of rewards, learners, resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import compile_config
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.reward_model.base import Sizes
from tests.reward_model.bonus import Seen, assert_learners_stay_equal, assert_round_trip, make, two_learners
from tests.reward_model.rows import OBS, rows_of, sequences_of, step


def slow_errors(model: Any, obs: np.ndarray, seen: Seen) -> np.ndarray:
    """Return e [N] of observations [N, O], normalised by the moments of those seen."""
    found = []
    for each in obs.astype(np.float64):
        normal = np.clip((each - seen.mean) / seen.std, -5.0, 5.0)
        with torch.no_grad():
            one = torch.tensor(normal, dtype=torch.float32)[None]
            difference = model.module.predictor(one)[0] - model.module.target(one)[0]
        found.append(sum(float(part) ** 2 for part in difference) / len(difference))
    return np.array(found)


def test_the_bonus_equals_a_slow_sum_by_the_deviation_of_all_errors_so_far() -> None:
    model = make("rnd", intrinsic_reward_weight=0.5)
    seen, errors = Seen(), Seen()
    for number in range(3):
        batch = rows_of(number)
        seen.add(batch["next_obs"])
        errors.add(slow_errors(model, batch["next_obs"], seen))

        found = step(model, batch)

        expected = batch["reward"] + 0.5 * slow_errors(model, batch["next_obs"], seen) / errors.std
        np.testing.assert_allclose(found["reward"], expected, rtol=1e-4)
        assert found["reward"].dtype == np.float32


def test_the_loss_is_the_mean_error_and_moves_the_predictor_alone() -> None:
    model, batch, seen = make("rnd"), rows_of(), Seen()
    seen.add(batch["next_obs"])
    model.collect(batch)
    before = {name: value.clone() for name, value in model.module.state_dict().items()}

    minibatch = model.draw(model.lay_out(batch))
    loss, _ = model.update(minibatch)
    model.train()

    expected = slow_errors(make("rnd"), minibatch.next_obs.numpy(), seen).mean()
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    moved = {
        name.partition(".")[0] for name, value in model.module.state_dict().items() if not value.equal(before[name])
    }
    assert moved == {"predictor"}


def test_the_bonus_of_what_was_learned_falls_and_that_of_other_observations_stays() -> None:
    model, known = make("rnd", update_per_collect=300, learning_rate=1e-2), rows_of(0)
    other = known.with_columns(next_obs=-known["next_obs"])
    model.collect(known)
    before = [model.estimate(each)["reward"] - each["reward"] for each in (known, other)]

    model.train()

    after = [model.estimate(each)["reward"] - each["reward"] for each in (known, other)]
    assert after[0].mean() < 0.05 * before[0].mean() and after[1].mean() > 5 * after[0].mean()


def test_steps_beyond_an_episode_have_no_bonus_and_do_not_count_in_the_moments() -> None:
    model, batch = make("rnd", intrinsic_reward_type="assign", intrinsic_reward_weight=1.0), sequences_of()

    found = step(model, batch)["reward"]

    beyond = np.arange(found.shape[1]) >= batch["num_steps"][:, None]
    assert (found[beyond] == 0).all() and (found[~beyond] > 0).all()
    moments = model.module.inputs.moments[0]
    learned_from = batch["obs"][:, 1:][batch["mask"]]
    assert float(moments.count) == len(learned_from)
    np.testing.assert_allclose(moments.mean, learned_from.mean(axis=0), rtol=1e-6)


def test_types_of_rewards() -> None:
    batch = rows_of()
    found = {}
    for kind in ("add", "assign", "new"):
        model = make("rnd", intrinsic_reward_type=kind, intrinsic_reward_weight=0.5)
        found[kind] = step(model, batch)

    np.testing.assert_allclose(found["add"]["reward"], batch["reward"] + found["assign"]["reward"], rtol=1e-6)
    np.testing.assert_array_equal(found["new"]["reward"], batch["reward"])
    np.testing.assert_allclose(0.5 * found["new"]["intrinsic_reward"], found["assign"]["reward"], rtol=1e-6)


def test_rows_weight_the_bonus_each_in_its_own_way() -> None:
    model, batch = make("rnd", intrinsic_reward_weight=0.5), sequences_of()
    weight = np.float32([0.0, 1.0, 0.1, 2.0])

    plain, weighted = step(model, batch), model.estimate(batch.with_columns(bonus_weight=weight))

    bonus = plain["reward"] - batch["reward"]
    np.testing.assert_allclose(weighted["reward"], batch["reward"] + weight[:, None] * bonus, rtol=1e-5, atol=1e-6)


def test_dicts_images_and_categories_are_observed() -> None:
    shapes = {"a.b": 2, "picture": [3, 8, 8], "place": {"one_hot": [5]}}
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {}
    for prefix in ("obs", "next_obs"):
        parts[f"{prefix}/a.b"] = rng.normal(size=(6, 2)).astype(np.float32)
        parts[f"{prefix}/picture"] = rng.integers(0, 256, (6, 3, 8, 8)).astype(np.uint8)
        parts[f"{prefix}/place"] = rng.integers(0, 5, 6)
    rows = {name: rows_of(rows=6)[name] for name in ("action", "reward", "terminated")}
    model = make("rnd", Sizes(shapes, 4, True))

    found = step(model, TransitionBatch({**parts, **rows}))

    assert np.isfinite(found["reward"]).all() and len(model.module.inputs.moments) == 2


def test_without_obs_norm_observations_stay_as_they_are() -> None:
    model, batch = make("rnd", obs_norm=False, intrinsic_reward_type="assign", intrinsic_reward_weight=1.0), rows_of()
    model.collect(batch)

    with torch.no_grad():
        obs = torch.tensor(batch["next_obs"])
        errors = (model.module.predictor(obs) - model.module.target(obs)).square().mean(dim=1).numpy()

    np.testing.assert_allclose(model.estimate(batch)["reward"], errors / errors.std(), rtol=1e-4)


def test_learners_have_the_moments_of_the_rows_of_all_and_stay_equal() -> None:
    batches = [rows_of(0), rows_of(1)]
    both = np.concatenate([batch["next_obs"] for batch in batches])

    (moments,) = two_learners("rnd", batches)[0].module.inputs.moments

    assert_learners_stay_equal("rnd", rows_of)
    np.testing.assert_allclose(moments.mean, both.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.std, both.std(axis=0), rtol=1e-5)


def test_a_model_goes_on_exactly_from_its_state() -> None:
    assert_round_trip("rnd", rows_of)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(intrinsic_reward_type="sum"), "intrinsic_reward_type.*'add', 'assign' or 'new', got 'sum'"),
        (dict(hidden_size_list=[64]), "hidden_size_list.*two widths or more"),
        (dict(obs_norm_clamp_min=2.0, obs_norm_clamp_max=1.0), "obs_norm_clamp_min.*is 2.0, not below"),
        (dict(intrinsic_reward_weight=-1.0), "intrinsic_reward_weight"),
    ],
)
def test_faults_of_a_config_are_named(changes: dict[str, Any], message: str) -> None:
    main = dict(
        env=dict(env_id="CartPole-v1"), policy=dict(model=dict(obs_shape=OBS, action_shape=2)), reward_model=changes
    )
    create = dict(env=dict(type="gymnasium"), policy=dict(type="dqn"), reward_model=dict(type="rnd"))

    with pytest.raises(ConfigError, match=message):
        compile_config(main, create, save=False)
