"""Sequences, whole episodes and shared statistics train in parallel, with a coordinator in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.pipeline.parallel.sequence_policy  # noqa: F401  # registers its policy
from ding_like.comm.flat_state import unflatten_state
from ding_like.comm.rest.weight_publisher import RestWeightPublisher
from ding_like.config import compile_config, deep_merge
from ding_like.data.rollout import Rollout
from ding_like.errors import ConfigError
from ding_like.pipeline.build import training_process
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.parallel.make_core import make_core
from ding_like.pipeline.parallel.service import LockedService
from ding_like.pipeline.parallel.settings import read_system
from ding_like.pipeline.parallel.training import Training
from ding_like.utils.checkpoint import load_state
from ding_like.worker import BaseLearner, FlaskFileSystemCollector, FlaskFileSystemLearner

EPISODES = dict(get_train_sample=True)


def configs(policy: str, *, env: dict[str, Any] | None = None, collector: str = "sample", **section: Any) -> Any:
    """Return both parts of a config of CartPole for a policy."""
    main = dict(
        env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, **(env or {})),
        policy=deep_merge(
            dict(
                model=dict(encoder_hidden_size_list=[8]),
                learn=dict(batch_size=16),
                eval=dict(evaluator=dict(eval_freq=10_000)),
            ),
            section,
        ),
    )
    create = dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type=policy),
        collector=dict(type=collector),
    )
    return main, create


class Run:
    """Hold a coordinator's service, and let collectors and a learner work for it until a limit."""

    def __init__(self, folder: Path, config: Any, *, max_env_step: int, collectors: int = 2) -> None:
        main, create = config
        main = compile_config({**main, "exp_name": str(folder / "run")}, create, seed=0)
        paths = {"path_data": str(folder / "data"), "path_policy": str(folder / "policy")}
        self.system = read_system({**paths, "num_collectors": collectors}, main)
        store = StateStore(folder / "state.sqlite")
        self.core, self.commander = make_core(main, self.system, store=store, seed=0, max_env_step=max_env_step)
        self.service = LockedService(self.core)
        self.cfg = {"main": main, "seed": 0, "num_batches": 4, "publish_interval_s": 0.0, **paths}
        self.collectors = [FlaskFileSystemCollector(self.cfg, coordinator=self.service) for _ in range(collectors)]
        self.learner = FlaskFileSystemLearner(self.cfg, coordinator=self.service)

    def train(self) -> dict[str, Any]:
        """Return the learner's result."""
        for worker in (*self.collectors, self.learner):
            worker.start()
        threads = [threading.Thread(target=each.run, daemon=True) for each in self.collectors]
        for thread in threads:
            thread.start()
        try:
            self.learner.run()
        finally:
            for each in self.collectors:
                each.stop()
            for thread in threads:
                thread.join(20)
        assert self.core.failure is None and not any(thread.is_alive() for thread in threads)
        return dict(self.commander.learn_result)

    def close(self) -> None:
        for worker in (*self.collectors, self.learner):
            worker.close()
        self.core.close()


@contextmanager
def running(folder: Path, config: Any, **kwargs: Any) -> Iterator[Run]:
    with training_process():
        run = Run(folder, config, **kwargs)
        try:
            yield run
        finally:
            run.close()


def spy_on_batches(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list in which every batch that is trained on will be."""
    batches: list[Any] = []
    train = BaseLearner.train

    def keep(learner: Any, batch: Any, *arguments: Any) -> Any:
        batches.append(batch)
        return train(learner, batch, *arguments)

    monkeypatch.setattr(BaseLearner, "train", keep)
    return batches


@pytest.mark.timeout(60)
def test_rows_that_are_sequences_train_at_the_serial_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configs(
        "sequence_dqn",
        random_collect_size=16,
        learn=dict(update_per_collect=2),
        collect=dict(n_sample=8, unroll_len=4),
        other=dict(replay_buffer=dict(replay_buffer_size=120)),
    )
    with running(tmp_path, config, max_env_step=1200) as run:
        batches = spy_on_batches(run, monkeypatch)

        result = run.train()

        # In one process 8 rows of 4 steps are followed by 2 updates; 16 rows are collected at random before.
        # Of each of two collectors, one segment may come after the learner was told that it has all.
        steps = [result["env_step"] - late * 64 * 4 - 16 * 4 for late in range(3)]
        assert result["train_iter"] in [each * 2 // (8 * 4) for each in steps]
        assert result["train_iter"] == run.core.book.plain()["granted_updates"]
        assert 1200 <= result["env_step"] <= run.core.env_step < 1200 + 2 * 64 * 4 + 64
        assert run.core.book.index("buffer").count == 120, "the capacity is of rows"
    assert all(batch["obs"].shape == (16, 4, 4) and batch["action"].shape == (16, 4) for batch in batches)
    steps = batches[-1]["step"]
    follows = (np.diff(steps, axis=1) == 1) | (steps[:, 1:] == 0)
    assert follows.all(), "a row is of one lane, in order"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("n_episode", [4, 7])
def test_off_policy_episodes_train_at_the_serial_ratio(tmp_path: Path, n_episode: int) -> None:
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
        segments = run.core.book.index("buffer").next_serial - 1
        # Of each of two collectors, one segment may come after the learner was told that it has all.
        episodes = [(segments - plain["warmup_segments"] - late) * run.system.segment_episodes for late in range(3)]
        assert result["train_iter"] in [each * 5 // n_episode for each in episodes]
        assert result["train_iter"] == plain["granted_updates"] > 20
        assert result["env_step"] >= 1500


@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", ["ppo", "a2c"])
@pytest.mark.parametrize("n_episode", [4, 5])
def test_an_on_policy_batch_is_of_whole_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, n_episode: int
) -> None:
    config = configs(policy, collector="episode", collect=dict(n_episode=n_episode, collector=EPISODES))
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(n_episode=4, n_sample=None), "collector 'sample', which collects rows.*type='episode'"),
        (dict(n_episode=1, n_sample=None), "fewer than the 2 envs"),
    ],
)
def test_episodes_that_a_collector_cannot_play_are_refused(tmp_path: Path, change: Any, said: str) -> None:
    plays = "fewer" in said
    collect = {**change, "collector": EPISODES if plays else {}}
    main, create = configs("dqn", collector="episode" if plays else "sample", collect=collect)

    with pytest.raises(ConfigError, match=said):
        Run(tmp_path, (main, create), max_env_step=100)


NORMS = [dict(type="obs_norm"), dict(type="reward_norm")]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", ["dqn", "ppo"])
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

        training = run.learner._training
        assert training is not None
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


@pytest.mark.timeout(60)
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
        policy = run.learner._training.policy  # type: ignore[union-attr]
        scales = []
        for batch in batches[1:]:
            policy.collect_mode.load_state_dict(unflatten_state(states[int(batch["policy_version"][0])]))
            rollout = Rollout(2, capacity=len(batch))
            names = [name for name in batch.columns if name not in ("advantage", "return_", "value", "weight")]
            rollout.append({name: batch[name] for name in names})
            scales.append(policy._returns.std)

            again, _ = policy.segment(rollout)

            order = np.lexsort((again["step"], again["episode_id"]))
            as_sent = np.lexsort((batch["step"], batch["episode_id"]))
            for name in ("advantage", "return_", "value"):
                np.testing.assert_allclose(again[name][order], batch[name][as_sent], rtol=1e-5, atol=1e-5)
    assert len(scales) >= 2 and all(scale != 1.0 for scale in scales)


@pytest.mark.timeout(60)
def test_a_learner_that_is_started_again_goes_on_from_the_statistics_that_were_saved(tmp_path: Path) -> None:
    config = configs("ppo", env=dict(wrappers=NORMS), collect=dict(n_sample=128))
    with running(tmp_path, config, max_env_step=300) as run:
        run.train()
        first = run.learner._training
        assert first is not None
        first.save(print, 0)

        second = Training(
            run.cfg, run_id=first.run_id, store=run.learner._store, hooks=[], get_data=lambda size: lambda: None
        )
        second.go_on_from_saved()

        for name, entry in first.statistics.weights().items():
            for field, value in entry.items():
                assert np.array_equal(second.statistics.weights()[name][field], value) and value.any()
        before = second.statistics.weights()["1.ObsNorm"]["count"]
        told = {f"{name}/{field}": v for name, e in second.statistics.weights().items() for field, v in e.items()}
        second.statistics.merge(told, serial=1)
        assert second.statistics.weights()["1.ObsNorm"]["count"] == before, "that segment is in them already"
        second.close()
