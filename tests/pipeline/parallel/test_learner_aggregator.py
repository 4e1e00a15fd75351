"""Two learners behind the aggregator learn what one learner with the whole batch learns."""

from __future__ import annotations

import copy
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import compile_config, read_config
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.components import build_learner
from ding_like.pipeline.envs import fit_policy_config
from ding_like.pipeline.learners.synced import LearnerAggregator, check_shares
from ding_like.pipeline.parallel.comm_learner import FinalEvaluation
from ding_like.policy import create_policy
from ding_like.utils.checkpoint import ResumeStore
from ding_like.utils.seeding import make_rng, set_pkg_seed
from ding_like.worker import BaseLearner, create_learner
from tests.pipeline.parallel.runs import configs, running, working

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


CONFIG_FILE = "config.py"  # in the folder in which a test works


def compiled(*, text: str = CONFIG, learn: str = "", save: bool = False) -> Any:
    """Write a config's file and return what it is compiled to."""
    Path(CONFIG_FILE).write_text(text.replace("{learn}", learn))
    file = read_config(CONFIG_FILE)
    return compile_config(file.main_config, file.create_config, seed=0, save=save)


@pytest.fixture
def make_learner(in_tmp: Path) -> Iterator[Callable[..., BaseLearner]]:
    """Give what makes a learner of a compiled config; all are closed."""
    made: list[BaseLearner] = []

    def make(cfg: Any, name: str, **kwargs: Any) -> BaseLearner:
        named = {"rng": make_rng(0, "learner"), "exp_name": str(in_tmp), "instance_name": name, **kwargs}
        made.append(create_learner(cfg.policy.learn.learner, **named))
        return made[-1]

    yield make
    for learner in made:
        learner.close()


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


def tensors_in(state: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested state, moments of optimizers among them, in the order of their names."""
    found = []
    for name, value in sorted(state.items()) if isinstance(state, dict) else enumerate(state):
        if isinstance(value, torch.Tensor):
            found.append(value.detach())
        elif isinstance(value, dict) or name == "moments":
            found += tensors_in(value)
    return found


def two_learners(cfg: Any) -> LearnerAggregator:
    return LearnerAggregator({"main": cfg, "seed": 0, "num_learners": 2, "config_file": Path(CONFIG_FILE).resolve()})


def worst(one: Any, other: Any) -> float:
    pairs = zip(tensors_in(one), tensors_in(other), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("autograd", marks=pytest.mark.slow)])
def test_two_learners_learn_what_one_does(make_learner: Callable[..., BaseLearner], backend: str) -> None:
    cfg = compiled(learn=', backend="autograd"' if backend == "autograd" else "")
    one, first = make_policy(cfg), make_policy(cfg)
    data = batches(25)
    single = make_learner(cfg, "one", policy=one.learn_mode)
    before_threads = threading.active_count()
    rng, aggregator = make_rng(0, "learner"), two_learners(cfg)
    aggregator.start(first, rng=rng)
    shared = {"reducer": aggregator.reducer, "dist_info": (0, 2)}
    learner = make_learner(cfg, "first", policy=first.learn_mode, rng=rng, **shared)
    # As if the first learner went on from a saved point: the other one must have that too.
    single.train(data[0])
    learner.load_state_dict(single.state_dict())
    learner.policy.load_state_dict(copy.deepcopy(one.learn_mode.state_dict()))

    priorities = []
    for number, batch in enumerate(data):
        if number == len(data) // 3:
            saved = copy.deepcopy(one.learn_mode.state_dict())
        if number == len(data) // 2:  # another attempt goes on from that point
            for policy in (one, first):
                policy.learn_mode.load_state_dict(copy.deepcopy(saved))
            aggregator.renew()
        single.train(batch)
        learner.train(aggregator.share(batch, train_iter=learner.train_iter))
        merged = aggregator.merge_priority(learner.priority_info)
        if merged:
            priorities.append(np.abs(merged["priority"] - np.asarray(single.priority_info["priority"])).max())
    aggregator.close()
    aggregator.close()

    assert Path("run/log/learners/rank1.txt").read_text() == ""
    assert learner.train_iter == single.train_iter
    assert worst(one.learn_mode.state_dict(), make_policy(cfg).learn_mode.state_dict()) > 0.01, "it learned"
    assert worst(first.learn_mode.state_dict(), one.learn_mode.state_dict()) <= 1e-6
    assert max(priorities, default=0.0) <= 1e-5
    assert threading.active_count() <= before_threads


@pytest.mark.slow
def test_a_learner_that_dies_ends_the_others_with_the_cause(make_learner: Callable[..., BaseLearner]) -> None:
    cfg = compiled()
    policy, aggregator = make_policy(cfg), two_learners(cfg)
    aggregator.start(policy, rng=make_rng(0, "learner"))
    learner = make_learner(cfg, "first", policy=policy.learn_mode, reducer=aggregator.reducer, dist_info=(0, 2))
    first, second = batches(2)
    learner.train(aggregator.share(first))
    aggregator.merge_priority(learner.priority_info)
    os.kill(aggregator.pid(1), signal.SIGKILL)

    with pytest.raises(CommError, match=r"learner rank 1 of 2 was killed by SIGKILL; its output is in .*rank1.txt"):
        learner.train(aggregator.share(second))
    aggregator.close()


REWARD_MODEL = """
import torch

from ding_like.reward_model import RewardModel


class Constant(RewardModel):
    def build(self):
        module = torch.nn.Module()
        module.register_buffer("value", torch.zeros(()))
        return module

    def rewards(self, transitions):
        return self.module.value.expand(len(transitions))
"""


def test_the_others_reward_model_has_the_state_of_the_firsts(
    make_learner: Callable[..., BaseLearner], in_tmp: Path
) -> None:
    (in_tmp / "reward.py").write_text(REWARD_MODEL)
    section = f'reward_model=dict(type="{in_tmp}/reward.py:Constant"),\n    policy=dict('
    cfg = compiled(text=CONFIG.replace("policy=dict(", section, 1))
    one, first, rng, aggregator = make_policy(cfg), make_policy(cfg), make_rng(0, "learner"), two_learners(cfg)
    aggregator.start(first, rng=rng)
    learner = build_learner(cfg, first, seed=0, rng=rng, reducer=aggregator.reducer, num_learners=2)
    single = make_learner(cfg, "one", policy=one.learn_mode)
    aggregator.reward_model = learner.reward_model
    learner.reward_model.module.value.fill_(5.0)  # as one that was loaded from a saved point

    for batch in batches(5):
        single.train(batch.with_columns(reward=np.full(len(batch), 5, np.float32)))
        learner.train(aggregator.share(batch, train_iter=learner.train_iter))
        aggregator.merge_priority(learner.priority_info)
    aggregator.close()
    learner.close()

    assert worst(first.learn_mode.state_dict(), one.learn_mode.state_dict()) <= 1e-6


def test_it_starts_from_the_documented_config(in_tmp: Path) -> None:
    main = compiled(save=True)
    at = {"host": "127.0.0.1", "port": 7000}
    learners = {"learner0": ("0", "127.0.0.1", 7001), "learner1": ("1", "127.0.0.1", 7002)}
    aggregator = LearnerAggregator({"main": main, "master": at, "slave": at, "learner": learners})

    aggregator.start()

    assert aggregator.policy.grad_vectors() and aggregator.pid(1) > 0
    aggregator.close()
    with pytest.raises(ConfigError, match="has no 'main'"):
        LearnerAggregator({"master": at, "slave": at, "learner": learners})


def test_what_cannot_be_shared_is_refused(in_tmp: Path) -> None:
    cfg = compiled(text=CONFIG.replace("batch_size=32", "batch_size=33"))
    with pytest.raises(ConfigError, match="batch_size is 33.*multiple of 2"):
        two_learners(cfg)
    check_shares(cfg, 3)
    (in_tmp / "own.py").write_text("class Own:\n    config = {}\n")
    model = f'reward_model=dict(type="{in_tmp}/own.py:Own"), policy=dict('
    with pytest.raises(ConfigError, match=r"reward_model.type '.*Own' learns in DI-engine's style.*start one learner"):
        two_learners(compiled(text=CONFIG.replace("policy=dict(", model, 1)))
    aggregator = two_learners(compiled())
    with pytest.raises(ConfigError, match="num_learners=1"):  # it has no gradient vectors
        aggregator.start(SimpleNamespace(grad_vectors=list), rng=make_rng(0, "learner"))
    aggregator.close()


KILL_AT = 20


def kill_rank_1_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Kill the second learner before a batch is shared; return the list that will hold the updates made by then."""
    killed: list[int] = []
    share = LearnerAggregator.share

    def kill_first(aggregator: LearnerAggregator, batch: Any, *, train_iter: int = 0) -> Any:
        if train_iter >= KILL_AT and not killed:
            killed.append(train_iter)
            os.kill(aggregator.pid(1), signal.SIGKILL)
        return share(aggregator, batch, train_iter=train_iter)

    monkeypatch.setattr(LearnerAggregator, "share", kill_first)
    return killed


@pytest.mark.slow
def test_the_next_attempt_goes_on_where_a_learner_was_lost(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = kill_rank_1_once(monkeypatch)
    config = configs("dqn", learn=dict(batch_size=16), collect=dict(n_sample=8))
    Path(CONFIG_FILE).write_text(f"main_config, create_config = {config!r}")

    with running(in_tmp, config, max_env_step=800, collectors=1, num_learners=2) as run:
        run.cfg |= {"num_learners": 2, "config_file": in_tmp / CONFIG_FILE}
        with working([run.new_collector()]):
            lost = run.new_learner()
            lost.start()
            with pytest.raises(CommError, match="learner rank 1 of 2 was killed by SIGKILL"):
                lost.run()
            lost.close()
            saved = ResumeStore(Path(run.cfg["main"].exp_name, "learner_state"), durable=False).load_newest()
            second = run.new_learner()
            second.start()
            second.run()
        result = run.commander.learn_result

    assert killed == [saved.parts["learner"]["last_iter"]], "all that was learned is saved"
    assert result["train_iter"] > killed[0] and result["env_step"] >= 800
