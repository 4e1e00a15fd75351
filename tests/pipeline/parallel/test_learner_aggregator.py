"""Two learners behind the aggregator learn what one learner with the whole batch learns."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.torch_dist import tensors_in
from ding_like.config import compile_config, read_config
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.parallel.final_evaluation import FinalEvaluation
from ding_like.pipeline.parallel.learner_aggregator import LearnerAggregator
from ding_like.pipeline.parallel.shares import check_shares
from ding_like.policy import create_policy
from ding_like.utils.seeding import make_rng, set_pkg_seed
from ding_like.worker import BaseLearner, create_learner

CONFIG = """
main_config = dict(
    exp_name="run",
    env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2),
    policy=dict(
        priority=True,
        priority_IS_weight=True,
        model=dict(encoder_hidden_size_list=[16]),
        learn=dict(batch_size=32, learning_rate=1e-2, target_update_freq=7, grad_clip_norm=0.5{learn}),
        collect=dict(n_sample=8),
    ),
)
create_config = dict(
    env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"),
    replay_buffer=dict(type="advanced"),
)
"""


class Part:
    """Hold one learner and what it is made of."""

    def __init__(self, cfg: Any, folder: Path, name: str, **kwargs: Any) -> None:
        self.learner: BaseLearner = create_learner(
            cfg.policy.learn.learner, rng=make_rng(0, "learner"), exp_name=str(folder), instance_name=name, **kwargs
        )


def make_policy(cfg: Any) -> Any:
    judge = FinalEvaluation(cfg, seed=0)
    try:
        set_pkg_seed(0)
        return create_policy(fit_policy_config(cfg.policy, judge.env))
    finally:
        judge.close()


def batches(num: int, rows: int = 32) -> list[TransitionBatch]:
    rng = np.random.default_rng(3)
    return [
        TransitionBatch(
            {
                "obs": rng.standard_normal((rows, 4)).astype(np.float32),
                "action": rng.integers(0, 2, rows),
                "reward": rng.standard_normal(rows).astype(np.float32),
                "next_obs": rng.standard_normal((rows, 4)).astype(np.float32),
                "terminated": rng.random(rows) < 0.2,
                "weight": rng.random(rows).astype(np.float32),
            }
        )
        for _ in range(num)
    ]


def start(folder: Path, policy: Any, cfg: Any, config: Path) -> LearnerAggregator:
    aggregator = LearnerAggregator({"main": cfg, "seed": 0, "num_learners": 2, "config_file": config})
    aggregator.start(policy.learn_mode.state_dict(), policy.grad_vectors())
    return aggregator


@pytest.mark.timeout(90)
@pytest.mark.parametrize("backend", ["numpy", "autograd"])
def test_two_learners_learn_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "config.py"
    config.write_text(CONFIG.format(learn=', backend="autograd"' if backend == "autograd" else ""))
    file = read_config(config)
    cfg = compile_config(file.main_config, file.create_config, seed=0, save=False)
    one, first = make_policy(cfg), make_policy(cfg)
    single = Part(cfg, tmp_path, "one", policy=one.learn_mode).learner
    before_threads = threading.active_count()
    aggregator = start(tmp_path, first, cfg, config)
    learner = Part(
        cfg, tmp_path, "first", policy=first.learn_mode, reducer=aggregator.reducer, dist_info=(0, 2)
    ).learner
    process = aggregator._processes[0]

    priorities = []
    for batch in batches(25):
        single.train(batch)
        learner.train(aggregator.share(batch))
        merged = aggregator.merge_priority(learner.priority_info)
        priorities.append(np.abs(merged["priority"] - np.asarray(single.priority_info["priority"])).max())
    aggregator.close()
    aggregator.close()

    assert process.poll() == 0, (tmp_path / "run/log/workers/learner_rank1.txt").read_text()
    ours, wanted = tensors_in(first.learn_mode.state_dict()), tensors_in(one.learn_mode.state_dict())
    start_state = tensors_in(make_policy(cfg).learn_mode.state_dict())
    assert max(float((a - b).abs().max()) for a, b in zip(wanted, start_state, strict=True)) > 0.01, "it learned"
    assert max(float((a - b).abs().max()) for a, b in zip(ours, wanted, strict=True)) <= 1e-6
    assert max(priorities) <= 1e-5
    assert threading.active_count() <= before_threads
    single.close()
    learner.close()


@pytest.mark.timeout(90)
def test_a_learner_that_dies_ends_the_others_with_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "config.py"
    config.write_text(CONFIG.format(learn=""))
    file = read_config(config)
    cfg = compile_config(file.main_config, file.create_config, seed=0, save=False)
    policy = make_policy(cfg)
    aggregator = start(tmp_path, policy, cfg, config)
    learner = Part(
        cfg, tmp_path, "first", policy=policy.learn_mode, reducer=aggregator.reducer, dist_info=(0, 2)
    ).learner
    first, second = batches(2)
    learner.train(aggregator.share(first))
    aggregator.merge_priority(learner.priority_info)
    aggregator._processes[0].kill()
    aggregator._processes[0].wait(10)

    with pytest.raises(CommError, match="learner 0 of 2 has lost the others"):
        learner.train(aggregator.share(second))
    aggregator.close()
    learner.close()


def test_reports_of_several_learners_become_one() -> None:
    infos = [
        {"learner_step": 5, "task_id": "t", "loss": 1.0, "ids": [1], "learner_done": False},
        {"learner_step": 6, "task_id": "t", "loss": 3.0, "ids": [2, 3], "learner_done": True},
    ]

    merged = LearnerAggregator.merge_info(infos)

    assert merged == {"learner_step": 5, "task_id": "t", "loss": 2.0, "ids": [1, 2, 3], "learner_done": False}


def test_what_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    policy = compile_config(
        {"env": {"env_id": "CartPole-v1"}, "policy": {"learn": {"batch_size": 33}}},
        {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "dqn"}},
        seed=0,
        save=False,
    ).policy

    with pytest.raises(ConfigError, match="batch_size is 33.*multiple of 2"):
        check_shares(policy, 2)
    check_shares(policy, 3)


def test_a_policy_without_gradient_vectors_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text(CONFIG.format(learn=""))
    file = read_config(config)
    cfg = compile_config(file.main_config, file.create_config, seed=0, save=False)
    aggregator = LearnerAggregator({"main": cfg, "seed": 0, "num_learners": 2, "config_file": config})

    with pytest.raises(ConfigError, match="num_learners=1"):
        aggregator.start({}, [])
    aggregator.close()


def test_tensors_are_in_the_order_of_their_names() -> None:
    state = {"b": torch.ones(1), "a": {"z": torch.zeros(2), "y": torch.zeros(3)}, "n": 3}

    assert [len(each) for each in tensors_in(state)] == [3, 2, 1]
