"""T-REX: its loss is that of a slow version, snippets are of one episode each, ranks count, and no reward does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from ding_like.entry import serial_pipeline
from ding_like.entry.ranked_data import collect_ranked
from ding_like.errors import ConfigError, SchemaError
from ding_like.reward_model.base import Sizes
from ding_like.reward_model.trex import Ranking, TREXRewardModel
from tests.reward_model.ranked import LENGTHS, OBS, RANKS, demonstrations, make, saved
from tests.reward_model.rows import means_of_two, run_two

DEMOS = demonstrations(LENGTHS, RANKS)
STARTS = np.concatenate([[0], np.cumsum(LENGTHS)[:-1]])


@pytest.fixture
def file(tmp_path: Path) -> str:
    return saved(tmp_path, "ranked", DEMOS)


def ranking() -> Ranking:
    return Ranking(DEMOS.columns["episode_id"], DEMOS.columns["rank"], "it")


def test_snippets_are_consecutive_steps_of_one_episode_and_both_of_a_pair_are_of_one_length() -> None:
    start, length = ranking().draw_snippets(np.random.default_rng(0), 500, shortest=2, longest=6)
    drawn = set()

    for first, size in zip(start.T, length.T, strict=True):
        ids = [DEMOS.columns["episode_id"][at : at + size[0]] for at in first]
        assert all(len(set(each)) == 1 for each in ids)
        available = min(LENGTHS[each[0]] for each in ids)
        assert size[0] == size[1] == len(ids[0]) == len(ids[1]) <= available and size[0] >= min(2, available)
        drawn.update(row for at in first for row in range(at, at + size[0]))
    assert {*length.ravel()} == {2, 3, 4, 5, 6}
    assert drawn == set(range(sum(LENGTHS)))  # every step


def test_each_pair_of_different_ranks_is_drawn_as_often_and_the_second_is_the_better() -> None:
    own = ranking()
    pairs = own.draw_pairs(np.random.default_rng(0), 6000)
    started = np.searchsorted(STARTS, own.start[pairs])
    found, counts = np.unique(started.T, axis=0, return_counts=True)
    expected = {(i, j) for i in range(6) for j in range(6) if RANKS[i] < RANKS[j]}

    assert {tuple(each) for each in found.tolist()} == expected
    assert counts.min() > 0.8 * 6000 / len(expected)


def slow_loss(model: Any, l1_weight: float) -> tuple[float, float]:
    """Return (loss, accuracy) of the pairs that the model draws next, pair by pair and step by step."""
    minibatch, size = model.draw_snippets(), model._cfg.batch_size
    longest = len(minibatch) // (2 * size)
    losses, outputs, right = [], [], 0
    for pair in range(size):
        returns = []
        for place in (pair, size + pair):
            total = 0.0
            for step in range(place * longest, (place + 1) * longest):
                if minibatch.valid[step]:
                    out = float(model.module.net(minibatch.obs[step : step + 1]).detach())
                    outputs.append(abs(out))
                    total += out
            returns.append(total)
        losses.append(-math.log(math.exp(returns[1]) / (math.exp(returns[0]) + math.exp(returns[1]))))
        right += returns[1] > returns[0]
    return sum(losses) / size + l1_weight * sum(outputs) / len(outputs), right / size


WHOLE: dict[str, Any] = dict(whole_episodes=True, min_snippet_length=25, max_snippet_length=50)


@pytest.mark.parametrize("changes", [{}, WHOLE])
@pytest.mark.parametrize("l1_weight", [0.0, 0.5])
def test_the_loss_is_that_of_a_slow_version(file: str, l1_weight: float, changes: dict[str, Any]) -> None:
    slow, fast = (make(file, l1_weight=l1_weight, **changes) for _ in range(2))
    for model in (slow, fast):
        model.train()  # the first weights give all steps the same
    loss, info = fast.update(fast.draw_snippets())
    loss = loss.detach()

    assert (float(loss), float(info["pair_accuracy"])) == pytest.approx(slow_loss(slow, l1_weight), rel=1e-5)


def test_the_worse_snippets_lead_a_minibatch_and_the_better_ones_follow(file: str) -> None:
    model = make(file)
    worse, better = model.draw_snippets().obs[:, 0].reshape(2, 16, -1).mean(dim=2)

    assert float((better - worse).mean()) > 0.8  # by its rank, a number of 0, 1 or 2


def test_the_rewards_follow_the_ranks_and_are_standardised(file: str) -> None:
    model = make(file, pretrain_updates=300)
    info = model.train()
    reward = model.estimate(DEMOS.batch())["reward"]

    assert float(info["pair_accuracy"]) > 0.9
    assert reward.mean() == pytest.approx(0, abs=1e-5) and reward.std() == pytest.approx(1, abs=1e-5)
    means = [reward[DEMOS.columns["rank"] == rank].mean() for rank in range(3)]
    assert means[0] < means[1] < means[2]


def test_whole_episodes_are_compared_on_request(file: str) -> None:
    model = make(file, **WHOLE)
    minibatch = model.draw_snippets()
    rows = [obs[valid] for obs, valid in zip(*(each.reshape(32, -1, *each.shape[1:]) for each in (
        minibatch.obs, minibatch.valid)), strict=True)]  # fmt: skip
    episodes = [torch.as_tensor(DEMOS.columns["obs"][at : at + n]) for at, n in zip(STARTS, LENGTHS, strict=True)]
    found = [next(i for i, each in enumerate(episodes) if torch.equal(each, row)) for row in rows]

    assert all(RANKS[worse] < RANKS[better] for worse, better in zip(found[:16], found[16:], strict=True))
    assert len(set(found)) == len(LENGTHS)


def episodes_that_differ_in_length_alone(folder: Path, *, longer_is_better: bool) -> tuple[Any, str]:
    """Return (demonstrations, their file) of 20 episodes of the same states."""
    lengths = [3 + 2 * i for i in range(20)]
    ranks = [i if longer_is_better else 19 - i for i in range(20)]
    found = demonstrations(lengths, ranks)
    obs = np.random.default_rng(1).normal(size=(len(found), OBS)).astype(np.float32)
    return found, saved(folder, f"length{longer_is_better}", found, obs=obs, next_obs=obs)


@pytest.mark.parametrize("longer_is_better", [True, False])
def test_whole_episodes_teach_whether_going_on_is_good(tmp_path: Path, longer_is_better: bool) -> None:
    demos, file = episodes_that_differ_in_length_alone(tmp_path, longer_is_better=longer_is_better)
    model = make(file, pretrain_updates=200, centre=False, **WHOLE)
    model.train()
    reward = model.estimate(demos.batch())["reward"]

    assert (reward > 0).mean() > 0.95 if longer_is_better else (reward < 0).mean() > 0.95


def test_rewards_that_are_not_centred_have_a_mean_square_of_one(file: str) -> None:
    centred, plain = (make(file, centre=centre, **WHOLE, pretrain_updates=100) for centre in (True, False))
    for model in (centred, plain):
        model.train()
    rewards = [model.estimate(DEMOS.batch())["reward"] for model in (centred, plain)]
    out = plain.module.net(torch.as_tensor(DEMOS.columns["obs"])).detach().numpy()[:, 0]

    assert rewards[0].mean() == pytest.approx(0, abs=1e-5) and rewards[0].std() == pytest.approx(1, abs=1e-5)
    assert np.allclose(rewards[1], out / np.sqrt(np.mean(out**2)), rtol=1e-4)


def test_the_network_takes_the_action_on_request(tmp_path: Path, file: str) -> None:
    other = DEMOS.batch().with_columns(action=1 - DEMOS.columns["action"])
    for with_action in (False, True):
        model = make(file, with_action=with_action)
        model.train()
        same = np.array_equal(model.estimate(DEMOS.batch())["reward"], model.estimate(other)["reward"])
        assert same is not with_action


def test_a_list_of_files_is_ranked_by_its_order(tmp_path: Path) -> None:
    ids = DEMOS.columns["episode_id"]
    order = np.argsort(DEMOS.columns["rank"], kind="stable")
    whole = saved(tmp_path, "whole", DEMOS, **{name: column[order] for name, column in DEMOS.columns.items()})
    files = []
    for rank in range(3):
        rows = DEMOS.columns["rank"] == rank
        columns = {name: column[rows] for name, column in DEMOS.columns.items()}
        # Episodes of each file count from 0.
        columns["episode_id"] = np.unique(ids[rows], return_inverse=True)[1]
        files.append(saved(tmp_path, f"rank{rank}", DEMOS, **{**columns, "rank": None}))
    models = [make(each) for each in (whole, files)]
    for model in models:
        model.train()

    assert torch.equal(models[0]._params.data_vector, models[1]._params.data_vector)


def test_no_reward_is_read(tmp_path: Path, file: str) -> None:
    rewards = np.full(len(DEMOS), 7, np.float32)
    models = [make(file), make(saved(tmp_path, "others", DEMOS, reward=rewards))]
    for model in models:
        model.collect(DEMOS.batch())
        model.train()

    found = [model.estimate(DEMOS.batch().with_columns(reward=rewards * i))["reward"] for i, model in enumerate(models)]
    assert np.array_equal(*found)


def test_the_model_is_trained_once_and_then_stays_as_it_is(file: str) -> None:
    model = make(file)
    assert model.train() and not model.train()
    before = model._params.data_vector.clone()
    for _ in range(3):
        model.collect(DEMOS.batch())
        model.train()

    assert torch.equal(model._params.data_vector, before)


def test_a_model_goes_on_from_its_state_without_training_again(file: str) -> None:
    first, second = make(file), make(file, seed=1)
    first.train()
    second.load_state_dict(first.state_dict())

    assert second.train() == {}
    assert np.array_equal(first.estimate(DEMOS.batch())["reward"], second.estimate(DEMOS.batch())["reward"])
    assert np.array_equal(first._rng.random(3), second._rng.random(3))


def test_models_of_several_learners_stay_equal_though_each_draws_its_own_pairs(file: str) -> None:
    models = [make(file, mean=mean) for mean in means_of_two()]
    models[1]._rng = np.random.default_rng(9)
    run_two(lambda rank: models[rank].train())
    alone = make(file)
    alone.train()

    assert torch.equal(models[0]._params.data_vector, models[1]._params.data_vector)
    assert not torch.equal(models[0]._params.data_vector, alone._params.data_vector)
    assert np.array_equal(*(model.estimate(DEMOS.batch())["reward"] for model in models))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": None}, "has no column 'rank'"),
        ({"rank": np.zeros(len(DEMOS), np.int64)}, "give two ranks or more"),
        ({"rank": np.arange(len(DEMOS)) // 6}, "two ranks in one episode, at row 6"),
    ],
)
def test_demonstrations_without_a_ranking_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(saved(tmp_path, "bad", DEMOS, **changes))


def test_demonstrations_of_another_env_and_files_that_are_not_there_are_refused(file: str) -> None:
    with pytest.raises(SchemaError, match="has the action 1 in row .*the env takes one of 1 choices"):
        make(file, sizes=Sizes(OBS, 1, True))
    with pytest.raises(ConfigError, match="does not fit this env"):
        make(file, sizes=Sizes(OBS + 1, 2, True))
    with pytest.raises(ConfigError, match="there is no file"):
        make([file, "none.safetensors"])


def test_contradictions_of_the_section_are_named() -> None:
    cfg = {**TREXRewardModel.default_config(), "min_snippet_length": 9, "max_snippet_length": 8}

    assert [path for path, _ in TREXRewardModel.check_config(cfg)] == ["data_path", "min_snippet_length"]

    cfg = {**TREXRewardModel.default_config(), "data_path": "it", "max_snippet_length": 60, "whole_episodes": True}
    assert [path for path, _ in TREXRewardModel.check_config(cfg)] == ["max_snippet_length"]


class OtherRewards(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Env whose rewards are others."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        return (obs, -3.0 * float(reward) + float(obs[0]), *rest)


def short_run(exp_name: str, changes: Any, **sections: Any) -> Any:
    """Train a small DQN on CartPole for 200 env steps, its env changed by a function."""
    main = dict(
        exp_name=exp_name,
        env=dict(env_id="CartPole-v1", collector_env_num=4, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9),
        policy=dict(
            nstep=1,
            model=dict(encoder_hidden_size_list=[8]),
            learn=dict(update_per_collect=2, batch_size=16, learner=dict(hook=dict(save_ckpt_after_iter=20))),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(replay_buffer=dict(replay_buffer_size=1000)),
        ),
        **sections,
    )
    create = dict(env=dict(type="gymnasium"), policy=dict(type="dqn"))
    setting = (lambda cfg: changes(gymnasium.make("CartPole-v1")), [{}] * 4, [{}])
    return serial_pipeline((main, create), seed=0, max_env_step=200, env_setting=setting)


def test_a_policy_learns_the_same_whatever_the_env_rewards(tmp_path: Path) -> None:
    short_run(str(tmp_path / "source"), lambda env: env)
    folder, path = tmp_path / "source", str(tmp_path / "ranked.safetensors")
    checkpoints = [folder / "ckpt/iteration_0.pth.tar", folder / "ckpt/iteration_40.pth.tar"]
    found = collect_ranked(str(folder / "total_config.py"), checkpoints, path, n_episode=3)
    section = dict(type="trex", data_path=path, pretrain_updates=5, min_snippet_length=2, max_snippet_length=5)
    same, other, none = (
        short_run(str(tmp_path / name), changes, **sections)
        for name, changes, sections in (
            ("same", lambda env: env, dict(reward_model=section)),
            ("other", OtherRewards, dict(reward_model=section)),
            ("none", lambda env: env, {}),
        )
    )
    weights = [torch.cat([each.flatten() for each in policy._model.state_dict().values()]) for policy in (same, other)]

    assert found.num_episodes == 6 and [*np.unique(found.columns["rank"])] == [0, 1]
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], torch.cat([each.flatten() for each in none._model.state_dict().values()]))


def test_one_checkpoint_is_no_ranking(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give two or more"):
        collect_ranked("config.py", ["one.pth.tar"], tmp_path / "ranked.safetensors")
