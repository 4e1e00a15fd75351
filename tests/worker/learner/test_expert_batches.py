"""An expert's rows in a learner: they join each batch, get no priorities, begin a new run, and are saved with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.data.expert_rows import ExpertRows
from ding_like.entry import parallel_pipeline, ray_pipeline, resume_pipeline, serial_pipeline
from ding_like.worker import BaseLearner
from tests import experts
from tests.contracts.policy_cases import assert_equal_states
from tests.policy.values import make_policy, make_rows

QUIET = {"hook": {"log_show_after_iter": False, "save_ckpt_after_iter": False}}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return experts.cartpole(tmp_path_factory.mktemp("expert") / "expert.safetensors", episodes=2)


Make = Callable[..., tuple[BaseLearner, list[TransitionBatch]]]


@pytest.fixture
def make_learner(file: Path, tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as opened:

        def make(name: str = "exp", *, pretrain_updates: int = 0, **changes: Any) -> Any:
            made = _learner(file, tmp_path / name, pretrain_updates=pretrain_updates, **changes)
            opened.callback(made[0].close)
            return made

        yield make


def _learner(file: Path, exp: Path, *, pretrain_updates: int, **changes: Any) -> tuple[BaseLearner, Any]:
    """Return a learner of DQfD, and the batches that its policy was given."""
    own = dict(model=dict(obs_shape=4, action_shape=2), collect=dict(data_path=str(file)), nstep=1)
    policy = make_policy("dqfd", **deep_merge(own, changes))
    seen: list[TransitionBatch] = []
    grad = policy.grad
    policy.grad = lambda batch: (seen.append(batch), grad(batch))[1]
    learner = BaseLearner(QUIET, policy.learn_mode, exp_name=str(exp), tb_logger=_Silent())
    rows = policy.expert_rows(np.random.default_rng(0))
    learner.use_expert_rows(rows, pretrain_updates=pretrain_updates)
    return learner, seen


class _Silent:
    """Writer of metrics that writes none."""

    def add_scalar(self, *args: Any, **kwargs: Any) -> None:
        pass


def own_rows(rows: int = 12, **columns: Any) -> TransitionBatch:
    other = make_rows(rows, obs=4, actions=2, seed=1)
    one_step = {f"one_step/{name}": other[name] for name in ("reward", "next_obs", "terminated")}
    batch: TransitionBatch = make_rows(rows, obs=4, actions=2, **one_step, **columns)
    # Of single steps, as the expert's here are.
    return TransitionBatch({name: column for name, column in batch.columns.items() if name != "discount"})


def test_the_policy_is_given_the_experts_rows_behind_the_agents(make_learner: Make) -> None:
    learner, seen = make_learner()

    learner.train(own_rows())

    assert len(seen) == 1 and seen[0]["is_expert"].tolist() == [False] * 12 + [True] * 4
    assert (seen[0]["reward"][12:] == 1).all() and learner.train_iter == 1


def test_priorities_of_the_experts_rows_do_not_reach_the_buffer(make_learner: Make) -> None:
    learner, seen = make_learner(priority=True)
    ids = np.arange(50, 62)

    learner.train(own_rows(replay_buffer_idx=ids))

    assert len(seen[0]) == 16 and len(learner.priority_info["priority"]) == 12
    assert (learner.priority_info["replay_buffer_idx"] == ids).all()


def test_a_new_run_begins_with_updates_on_the_expert_alone(make_learner: Make) -> None:
    learner, seen = make_learner(pretrain_updates=5, priority=True, learn=dict(batch_size=10))

    learner.call_hook("before_run")

    assert learner.train_iter == 5 and [len(batch) for batch in seen] == [10] * 5
    assert all(batch["is_expert"].all() for batch in seen)
    assert learner.priority_info == {}  # they are no rows of the buffer
    learner.call_hook("before_run")  # another attempt at the run
    assert learner.train_iter == 5
    learner.train(own_rows())
    assert seen[-1]["is_expert"].sum() == 4


def test_other_learners_get_their_share_of_what_it_begins_with(make_learner: Make) -> None:
    learner, seen = make_learner(learn=dict(batch_size=10))
    sent: list[TransitionBatch] = []
    learner.share_batch = lambda batch: (sent.append(batch), batch[:5])[1]

    learner.pretrain(2)

    assert [len(batch) for batch in sent] == [10, 10] and [len(batch) for batch in seen] == [5, 5]


def test_a_learner_goes_on_with_the_same_rows(make_learner: Make) -> None:
    one, _ = make_learner("one")
    one.train(own_rows())
    saved = {"learner": one.state_dict(), "policy": one.policy.state_dict()}
    other, seen = make_learner("other")
    other.policy.load_state_dict(saved["policy"])
    other.load_state_dict(saved["learner"])

    for learner in (one, other):
        learner.train(own_rows())

    assert isinstance(other.expert_rows, ExpertRows) and len(seen) == 1
    assert_equal_states(one.policy.state_dict(), other.policy.state_dict())
    assert_equal_states(one.state_dict()["expert_rows"], other.state_dict()["expert_rows"])


# ---- runs


def configs(file: Path, name: str = "dqfd", **policy: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a small run whose first 20 updates are on the expert's rows alone."""
    main = dict(
        exp_name="exp",
        env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
        policy=dict(
            model=dict(encoder_hidden_size_list=[8]),
            learn=dict(batch_size=16, update_per_collect=2, pretrain_updates=20),
            collect=dict(n_sample=8, data_path=str(file)),
            eval=dict(evaluator=dict(eval_freq=40)),
        ),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=name))
    return deep_merge(main, dict(policy=policy)), create


R2D3 = dict(burnin_step=2, learn_unroll_len=4, nstep=2, learn=dict(lambda2=0.5))
PRIORITISED = dict(priority=True, priority_IS_weight=True)


def result_of(exp: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(exp, "result.json").read_text())
    return found


@pytest.mark.usefixtures("in_tmp", "no_pictures")
@pytest.mark.parametrize(
    ("name", "settings"), [("dqfd", PRIORITISED), ("sqil", {}), ("r2d3", R2D3)], ids=["dqfd", "sqil", "r2d3"]
)
def test_a_run_in_two_parts_equals_one_in_one(file: Path, name: str, settings: dict[str, Any]) -> None:
    whole = serial_pipeline(configs(file, name, **settings), seed=3, max_env_step=480, exp_name="whole")
    serial_pipeline(configs(file, name, **settings), seed=3, max_env_step=240, exp_name="parts")
    resumed = resume_pipeline("parts", max_env_step=480)

    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())
    assert result_of("whole")["train_iter"] == result_of("parts")["train_iter"] > 40


@pytest.mark.usefixtures("in_tmp", "no_pictures")
@pytest.mark.timeout(120)
def test_a_parallel_run_begins_with_the_expert_and_joins_its_rows() -> None:
    file = experts.cartpole("expert.safetensors", episodes=2)
    system = dict(num_collectors=1)

    found = parallel_pipeline((*configs(file, **PRIORITISED), system), seed=0, max_env_step=400)

    assert found.env_step >= 400 and found.train_iter > 20 and np.isfinite(found.eval_value_raw).all()


@pytest.mark.slow
@pytest.mark.usefixtures("in_tmp", "no_pictures")
@pytest.mark.timeout(180)
def test_several_learners_begin_with_the_expert_alike() -> None:
    file = experts.cartpole("expert.safetensors", episodes=2)
    system = dict(num_collectors=1, num_learners=2)

    found = parallel_pipeline((*configs(file, **PRIORITISED), system), seed=0, max_env_step=300)

    assert found.train_iter > 20


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster", "in_tmp", "no_pictures")
@pytest.mark.parametrize("grad_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_on_ray_begins_with_the_expert_and_joins_its_rows(grad_workers: int) -> None:
    file = experts.cartpole(Path("expert.safetensors").absolute(), episodes=2)
    overrides = [f"system.ray.grad.workers={grad_workers}"]

    policy: Any = ray_pipeline(configs(file), seed=3, max_env_step=400, exp_name="ray", workers=1, overrides=overrides)

    assert result_of("ray")["train_iter"] > 30
    assert all(bool(torch.isfinite(each).all()) for each in policy.learn_mode.state_dict()["model"].values())
