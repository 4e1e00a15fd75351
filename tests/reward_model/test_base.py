"""What all reward models that learn from an expert share: the slot, updates, resume, several learners, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.demonstrations import Demonstrations
from ding_like.errors import ConfigError, SchemaError
from ding_like.reward_model import create_reward_model
from ding_like.reward_model.base import Moments, RewardModel, Sizes, Transitions
from tests.reward_model.imitation import SIZES, SMALL, expert_of, log_prob, make, two_learners
from tests.reward_model.rows import DISCRETE, SEVERAL, rows_of, sequences_of, step

every_model = pytest.mark.parametrize("kind", SMALL)
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


@every_model
@every_size
def test_estimate_changes_neither_batch_nor_model(kind: str, sizes: Sizes, tmp_path: Path) -> None:
    model, batch = make(kind, tmp_path, sizes), rows_of(1, sizes)
    step(model, batch)
    before = {name: column.copy() for name, column in batch.columns.items()}
    weights = {name: value.clone() for name, value in model.module.state_dict().items()}
    one, two = model.estimate(batch), model.estimate(batch)
    np.testing.assert_array_equal(one["reward"], two["reward"])
    assert one["reward"].dtype == np.float32 and one["reward"].shape == batch["reward"].shape
    assert np.isfinite(one["reward"]).all() and not np.array_equal(one["reward"], batch["reward"])
    for name, column in before.items():
        np.testing.assert_array_equal(batch[name], column)
    for name, value in model.module.state_dict().items():
        assert torch.equal(value, weights[name]), name


@every_model
@every_size
def test_a_sequence_has_the_rewards_of_its_steps(kind: str, sizes: Sizes, tmp_path: Path) -> None:
    model, batch = make(kind, tmp_path, sizes), sequences_of(2, sizes)
    found = step(model, batch)["reward"]
    assert found.shape == batch["reward"].shape
    for row in range(len(batch)):
        for place in range(found.shape[1]):
            if place >= batch["num_steps"][row]:
                assert found[row, place] == 0  # beyond the episode
                continue
            alone = {name: batch[name][row : row + 1, place] for name in ("action", "reward", "terminated")}
            alone |= {"obs": batch["obs"][row : row + 1, place], "next_obs": batch["obs"][row : row + 1, place + 1]}
            of_one = model.estimate(rows_of(0, sizes, 1).with_columns(**alone))["reward"]
            np.testing.assert_allclose(of_one, found[row, place], rtol=1e-4, atol=1e-6)


def test_steps_beyond_an_episode_are_not_learned_from(tmp_path: Path) -> None:
    batch = sequences_of(3)
    one, two = (make("gail", tmp_path) for _ in range(2))
    step(one, batch)
    outside = ~batch["mask"]
    action = np.where(outside, 1 - batch["action"].clip(0, 1), batch["action"])
    step(two, batch.with_columns(action=action))
    assert torch.equal(one.module.head.weight, two.module.head.weight)


@every_model
def test_a_loaded_model_goes_on_exactly(kind: str, tmp_path: Path) -> None:
    one, two = make(kind, tmp_path), make(kind, tmp_path, seed=5)
    for number in range(3):
        step(one, rows_of(number))
    two.load_state_dict(one.state_dict())
    for number in range(3, 6):
        np.testing.assert_array_equal(step(one, rows_of(number))["reward"], step(two, rows_of(number))["reward"])
    for name, value in one.module.state_dict().items():
        assert torch.equal(value, two.module.state_dict()[name]), name


@every_model
@every_size
def test_models_of_two_learners_stay_equal(kind: str, sizes: Sizes, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    one, two = (model.module.state_dict() for model in two_learners(kind, folders, 2, sizes))
    for name, value in one.items():
        assert torch.equal(value, two[name]), name
    alone = make(kind, tmp_path / "a", sizes)
    step(alone, rows_of(0, sizes))
    assert any(not torch.equal(value, one[name]) for name, value in alone.module.state_dict().items())


@pytest.mark.parametrize(("updates", "batches", "expected"), [(3, 4, 3), (8, 4, 8), (1, 8, 1), (0, 1, 0)])
def test_updates_are_those_of_a_collection_over_its_batches(
    updates: int, batches: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("gail", tmp_path)  # writes the file
    cfg = dict(SMALL["gail"], type="gail", data_path=str(tmp_path / "expert.safetensors"), update_per_collect=updates)
    model: Any = create_reward_model(cfg, DISCRETE, seed=0, rng=np.random.default_rng(0), batches_per_collect=batches)
    taken: list[int] = []
    real = model.update
    monkeypatch.setattr(model, "update", lambda minibatch: taken.append(len(minibatch)) or real(minibatch))
    for number in range(batches):
        step(model, rows_of(number))
    assert len(taken) == expected


def test_moments_are_those_of_all_vectors_of_all_learners() -> None:
    rng = np.random.default_rng(0)
    parts = [torch.tensor(rng.normal(3.0, [1.0, 5.0], (number, 2))) for number in (4, 6, 2, 8)]
    moments = Moments(2)
    for own, others in ((parts[0], parts[1]), (parts[2], parts[3])):

        def mean(sums: torch.Tensor, others: torch.Tensor = others) -> torch.Tensor:
            theirs = torch.cat([torch.tensor([float(len(others))]).double(), others.sum(0), others.square().sum(0)])
            return (sums + theirs) / 2

        moments.update(own, mean)
    every = torch.cat(parts).numpy()
    np.testing.assert_allclose(moments.mean.numpy(), every.mean(axis=0))
    np.testing.assert_allclose(moments.std.numpy(), every.std(axis=0), rtol=1e-6)
    assert float(moments.count) == len(every) / 2


def test_moments_without_deviation_leave_numbers_as_they_are() -> None:
    moments = Moments(1)
    moments.update(torch.full((5,), 2.0))
    assert moments.std.tolist() == [1.0]
    assert moments.normalise(torch.tensor([[2.5]])).tolist() == [[0.5]]
    assert moments.normalise(torch.tensor([[99.0]])).tolist() == [[5.0]]


@pytest.mark.parametrize("kind", ["airl", "guided_cost"])
def test_a_policy_without_probabilities_is_refused(kind: str, tmp_path: Path) -> None:
    make(kind, tmp_path)
    cfg = dict(SMALL[kind], type=kind, data_path=str(tmp_path / "expert.safetensors"))
    with pytest.raises(ConfigError, match=f"'{kind}' needs the probabilities .* choose policy 'ppo'"):
        create_reward_model(cfg, DISCRETE, seed=0, rng=np.random.default_rng(0))


@every_model
def test_demonstrations_of_another_env_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"has the action \d+ in row 0, and the env takes one of 3 x 2 choices"):
        make(kind, tmp_path, DISCRETE)
        make(kind, tmp_path, SEVERAL)
    with pytest.raises(ConfigError, match="does not fit this env"):
        make(kind, tmp_path, Sizes(7, DISCRETE.action_shape, True))


def test_a_config_names_what_it_lacks_and_what_has_no_effect() -> None:
    from ding_like.reward_model.pdeil import PDEILRewardModel
    from ding_like.reward_model.red import REDRewardModel

    assert dict(REDRewardModel.check_config(REDRewardModel.default_config()))["data_path"].startswith("is not set")
    cfg = PDEILRewardModel.default_config()
    cfg.update(data_path="file", learning_rate=0.5)
    (found,) = PDEILRewardModel.check_config(cfg)
    assert found[0] == "learning_rate" and "has no effect" in found[1]


class Seen(RewardModel):
    """Model that keeps what it asked the policy's probabilities of."""

    needs_log_prob = True

    def rewards(self, transitions: Transitions) -> torch.Tensor:
        return self.log_prob(transitions)


@every_size
def test_probabilities_are_asked_of_actions_as_the_env_takes_them(sizes: Sizes) -> None:
    batch = rows_of(4, sizes)

    def given(obs: Any, action: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        assert np.array_equal(action.numpy(), batch["action"]) and np.array_equal(obs.numpy(), batch["obs"])
        return log_prob(obs, action, mask)

    model = Seen({}, sizes, rng=np.random.default_rng(0), log_prob=given)
    expected = log_prob(torch.tensor(batch["obs"]), torch.tensor(batch["action"]), None)
    np.testing.assert_array_equal(model.estimate(batch)["reward"], expected.numpy())


def test_masks_go_to_the_policy_and_not_into_the_network() -> None:
    batch = rows_of(4)
    mask = np.ones((len(batch), 4), np.int8)
    columns = {name: column for name, column in batch.columns.items() if name not in ("obs", "next_obs")}
    for name in ("obs", "next_obs"):
        columns |= {f"{name}/board": batch[name], f"{name}/action_mask": mask}
    seen: list[Any] = []

    def given(obs: Any, action: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        seen.extend([obs, mask])
        return torch.zeros(len(obs))

    model = Seen({}, DISCRETE, rng=np.random.default_rng(0), log_prob=given)
    model.estimate(type(batch)(columns))
    assert np.array_equal(seen[0].numpy(), batch["obs"]) and np.array_equal(seen[1].numpy(), mask)


def test_the_expert_is_the_file(tmp_path: Path) -> None:
    model = make("gail", tmp_path)
    loaded = Demonstrations.load(tmp_path / "expert.safetensors")
    np.testing.assert_array_equal(model.expert.obs.numpy(), expert_of(DISCRETE)["obs"])
    assert len(model.expert) == len(loaded) and model.expert.action.sum(dim=1).eq(1).all()
