"""Sequences, whole episodes and shared statistics train in parallel, with a coordinator in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.rows import BatchReader
from ding_like.comm.rest.worker import RestWeightPublisher
from ding_like.comm.tensors import unflatten_state
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.errors import ConfigError
from ding_like.utils.checkpoint import load_state
from tests.pipeline.parallel.runs import Run, configs, running, spy_on_batches
from tests.policy.on_policy import make_policy, make_rollout


def test_off_policy_episodes_train_at_the_serial_ratio(tmp_path: Path) -> None:
    n_episode = 7
    config = configs(
        "dqn",
        collector="episode",
        random_collect_size=60,
        learn=dict(update_per_collect=5),
        collect=dict(n_episode=n_episode, collector=EPISODES),
        other=dict(replay_buffer=dict(replay_buffer_size=600)),
    )
    with running(tmp_path, config, max_env_step=1500) as run:
        assert run.system.segment_episodes == -(-n_episode // 2)

        result = run.train()

        plain = run.core.book.plain()
        segments = run.core.book.next_serial - 1
        # Of each of two collectors, one segment may arrive after the learner's last batch was granted.
        episodes = [(segments - plain["warmup_segments"] - late) * run.system.segment_episodes for late in range(3)]
        assert result["train_iter"] in [each * 5 // n_episode for each in episodes]
        assert result["train_iter"] == plain["granted_updates"] > 20
        assert result["env_step"] >= 1500


def test_an_on_policy_batch_is_of_whole_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_episode = 5
    config = configs("ppo", collector="episode", collect=dict(n_episode=n_episode, collector=EPISODES))
    with running(tmp_path, config, max_env_step=700) as run:
        batches = spy_on_batches(run, monkeypatch)

        run.train()

        share = run.system.segment_episodes
    assert len(batches) >= 3
    for number, batch in enumerate(batches):
        done = batch["terminated"] | batch["truncated"]
        assert int(done.sum()) == -(-n_episode // share) * share >= n_episode
        assert len(np.unique(batch["policy_version"])) == 1, f"batch {number} is of one version of the weights"
    assert len({len(batch) for batch in batches}) > 1, "episodes have the rows that they have"


def test_episodes_that_a_collector_cannot_play_are_refused(tmp_path: Path) -> None:
    rows = configs("dqn", collect=dict(n_episode=4, n_sample=None, collector={}))
    few = configs("dqn", collector="episode", collect=dict(n_episode=1, n_sample=None, collector=EPISODES))

    with pytest.raises(ConfigError, match="collector 'sample', which collects rows.*type='episode'"):
        Run(tmp_path, rows, max_env_step=100)
    with pytest.raises(ConfigError, match="fewer than the 2 envs"):
        Run(tmp_path, few, max_env_step=100)


EPISODES = dict(get_train_sample=True)
NORMS = [dict(type="obs_norm"), dict(type="reward_norm")]


@pytest.mark.parametrize("policy", [pytest.param("dqn", marks=pytest.mark.slow), "ppo"])
def test_normalised_envs_train_with_the_statistics_of_all_collectors(tmp_path: Path, policy: str) -> None:
    section: dict[str, Any] = dict(
        random_collect_size=32,
        learn=dict(update_per_collect=1),
        collect=dict(n_sample=8),
        other=dict(replay_buffer=dict(replay_buffer_size=200)),
    )
    if policy == "ppo":
        section = dict(collect=dict(n_sample=128))
    config = configs(policy, env=dict(wrappers=NORMS), **section)
    with running(tmp_path, config, max_env_step=600) as run:
        result = run.train()

        training = run.learner
        known = training.statistics.weights()["1.ObsNorm"]
        # Every step that was announced is observed once, and the first observation of each episode.
        assert known["count"] > run.core.env_step
        assert known["count"] <= 2 * run.core.env_step + 4
        judged = [lane[1]["state"]["count"] for lane in training.final_evaluation.manager.wrapper_states()]
        for collector in run.collectors:
            lanes = collector._collector._end.envs.wrapper_states()
            means = [lane[1]["state"]["mean"] for lane in lanes]
            assert all(lane[1]["state"]["is_frozen"] for lane in lanes) and np.array_equal(means[0], means[1])
        saved = load_state(tmp_path / "run/ckpt" / f"iteration_{result['last_iter']}.pth.tar")["env_wrappers"]
        assert [each["type"] for each in saved["lanes"][0]] == ["RewardNorm", "ObsNorm"]
        assert saved["lanes"][0][1]["state"]["count"] == judged[0] == judged[1] <= known["count"]


def test_value_norm_gives_the_advantages_of_one_process_with_the_learners_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configs("ppo", learn=dict(value_norm=True), collect=dict(n_sample=128))
    with running(tmp_path, config, max_env_step=700, collectors=1) as run:
        batches = spy_on_batches(run, monkeypatch)
        states: dict[int, Any] = {}
        publish = RestWeightPublisher.publish

        def keep(publisher: Any, weights: Any, **kwargs: Any) -> Any:
            states[weights.version.update] = {name: tensor.clone() for name, tensor in weights.state.items()}
            return publish(publisher, weights, **kwargs)

        monkeypatch.setattr(RestWeightPublisher, "publish", keep)
        run.train()
        policy = run.learner.policy
        scales = []
        for batch in batches[1:]:
            policy.collect_mode.load_state_dict(unflatten_state(states[int(batch["policy_version"][0])]))
            rollout = Rollout(2, capacity=len(batch))
            names = [name for name in batch.columns if name not in ("advantage", "return_", "value", "weight")]
            rollout.append({name: batch[name] for name in names})
            scales.append(policy._returns.now.std)

            again, _ = policy.segment(rollout)

            order = np.lexsort((again["step"], again["episode_id"]))
            as_sent = np.lexsort((batch["step"], batch["episode_id"]))
            for name in ("advantage", "return_", "value"):
                np.testing.assert_allclose(again[name][order], batch[name][as_sent], rtol=1e-5, atol=1e-5)
    assert len(scales) >= 2 and all(scale != 1.0 for scale in scales)


def test_a_learner_that_is_started_again_goes_on_from_the_statistics_that_were_saved(tmp_path: Path) -> None:
    config = configs("ppo", env=dict(wrappers=NORMS), collect=dict(n_sample=128))
    with running(tmp_path, config, max_env_step=300) as run:
        run.train()
        first = run.learner
        first.save()

        second = run.new_learner()
        second.build(run.core.run_id)
        second.load_saved()

        for name, entry in first.statistics.weights().items():
            for field, value in entry.items():
                assert np.array_equal(second.statistics.weights()[name][field], value) and value.any()
        before = second.statistics.weights()["1.ObsNorm"]["count"]
        told = {f"{name}/{field}": v for name, e in second.statistics.weights().items() for field, v in e.items()}
        second.statistics.merge(told, serial=1)
        assert second.statistics.weights()["1.ObsNorm"]["count"] == before, "that segment is in them already"
        second.close()


BURN_IN, STEPS = 2, 4


@pytest.mark.parametrize("policy", ["r2d2", pytest.param("drqn", marks=pytest.mark.slow)])
def test_sequences_with_their_state_train_at_the_serial_ratio(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configs(
        policy,
        env=dict(wrappers=[dict(type="obs_select", indices=[0, 2])]),
        nstep=3,
        burnin_step=BURN_IN,
        learn_unroll_len=STEPS,
        learn=dict(update_per_collect=2),
        collect=dict(n_sample=6),
        other=dict(replay_buffer=dict(replay_buffer_size=80)),
    )
    with running(tmp_path, config, max_env_step=1200) as run:
        batches = spy_on_batches(run, monkeypatch)

        result = run.train()

        assert result["train_iter"] == run.core.env_step * 2 // (6 * STEPS) >= 90
        assert run.core.book.count == 80, "the capacity is of rows"
    length = BURN_IN + STEPS
    for batch in batches:
        check(batch, length)
    assert any((batch["state/h"] != 0).any() for batch in batches)


def check(batch: Any, length: int) -> None:
    """Compare the shapes of a batch, its order in time and what is beyond its ends with what R2D2 learns from."""
    assert batch["obs"].shape == (16, length + 1, 2) and batch["state/h"].shape == batch["state/c"].shape == (16, 8)
    valid = np.arange(length) < batch["num_steps"][:, None]
    steps, first = batch["step"], batch["step"][:, :1]
    assert (steps[valid] == (first + np.arange(length))[valid]).all(), "a row is of one episode, in order"
    begins = (first == 0) & valid
    assert (batch["mask"] == (valid & (begins | (np.arange(length) >= BURN_IN)))).all()


# --- a batch of the rows of several collectors, each with lanes 0, 1, 2... of its own


def batch_of(segments: list[TransitionBatch]) -> TransitionBatch:
    """Return what a learner draws of these segments."""
    reader = BatchReader(1000, on_policy=True)
    news, ids, first_row = [], [], 0
    for serial, segment in enumerate(segments, start=1):
        news.append((m.NewSegment(serial, f"s{serial}", len(segment), first_row, "x", 1), dict(segment.columns)))
        ids.append(serial * m.ROWS_PER_SEGMENT + np.arange(len(segment)))
        first_row += len(segment)
    reader.take(news, m.Batches(1, np.arange(first_row), np.concatenate(ids), None))
    return reader.draw()


def test_no_lane_has_rows_of_two_segments() -> None:
    policy = make_policy()
    segments = [policy.segment(make_rollout(policy, seed=seed))[0] for seed in range(3)]

    batch = batch_of(segments)

    assert [each.tolist() for each in batch["lane"].reshape(3, 6, 4)] == [
        [[first, first + 1, first + 2, first + 3]] * 6 for first in (0, 4, 8)
    ]


def test_advantages_that_ppo_recomputes_are_those_of_each_collector() -> None:
    policy = make_policy(recompute_adv=True, learn=dict(epoch_per_collect=2, batch_size=1000))
    segments = [policy.segment(make_rollout(policy, seed=seed))[0] for seed in range(2)]

    # No update comes between the two epochs: the critic says what it said to the collectors.
    given, recomputed = policy.minibatches(batch_of(segments), np.random.default_rng(0))

    def by_obs(batch: TransitionBatch) -> dict[bytes, float]:
        return {obs.tobytes(): value for obs, value in zip(batch["obs"], batch["advantage"].tolist(), strict=True)}

    assert len(by_obs(given)) == 48
    assert by_obs(recomputed) == pytest.approx(by_obs(given), abs=1e-6)


def test_rows_that_are_sequences_have_lanes_of_their_segment_too() -> None:
    rows = TransitionBatch({"lane": np.array([[0, 0, 0], [1, 1, 1]])})

    assert batch_of([rows, rows])["lane"][:, 0].tolist() == [0, 1, 2, 3]
