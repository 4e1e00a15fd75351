import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import TrainingError
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.checkpoint import load_state
from ding_like.worker import BaseLearner


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = []

    def make(**learn) -> tuple[DQNPolicy, BaseLearner]:
        cfg = to_plain(DQNPolicy.default_config())
        cfg["model"] = dict(obs_shape=2, action_shape=2, encoder_hidden_size_list=[8])
        policy = DQNPolicy(deep_merge(cfg, dict(learn=learn)))
        hook = dict(check_finite_after_iter=4, log_show_after_iter=100, save_ckpt_after_iter=10000)
        made.append(BaseLearner(dict(hook=hook), policy.learn_mode, exp_name="exp"))
        return policy, made[-1]

    yield make
    for learner in made:
        learner.close()


def batch(*, reward: float = 1.0) -> TransitionBatch:
    return TransitionBatch(
        {
            "obs": np.ones((4, 2), np.float32),
            "next_obs": np.ones((4, 2), np.float32),
            "action": np.zeros(4, np.int64),
            "reward": np.array([1.0, reward, 1.0, 1.0], np.float32),
            "terminated": np.zeros(4, bool),
            "truncated": np.zeros(4, bool),
        }
    )


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_single_bad_batches_are_skipped_and_counted(make, reward, tmp_path):
    policy, learner = make()
    for bad in (False, True, False, True, False, False, False, False, False):
        before = policy._params.data_vector.clone()
        learner.train(batch(reward=reward if bad else 1.0))
        assert torch.equal(before, policy._params.data_vector) == bad

    assert policy.get_attribute("nonfinite_steps") == 2
    assert "2 updates were not finite" in (tmp_path / "exp/log/learner/learner_logger.txt").read_text()


def test_several_in_a_row_end_the_run_with_evidence(make, tmp_path):
    _, learner = make(max_nonfinite_steps=3)

    with pytest.raises(TrainingError, match=r"nonfinite_learner_iter\d+\.pt"):
        for _ in range(20):
            learner.train(batch(reward=np.nan))

    (path,) = (tmp_path / "exp").glob("nonfinite_*.pt")
    evidence = load_state(path)
    assert evidence["columns_not_finite"] == ["reward"]
    assert np.isnan(evidence["batch"]["reward"][1])
    assert all(torch.isfinite(value).all() for value in evidence["policy"]["model"].values())


def test_raise_ends_the_run_at_the_next_look(make):
    _, learner = make(nonfinite="raise")

    with pytest.raises(TrainingError, match="1 update had"):
        for bad in (True, False, False, False, False):
            learner.train(batch(reward=np.nan if bad else 1.0))
