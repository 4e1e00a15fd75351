"""Factories of a config travel as they are, and say and change what the config says of training."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ding_like.comm.channels import CollectRequest
from ding_like.config import compile_config
from ding_like.data.batch import TransitionBatch
from ding_like.envs import get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline import scheme_parts as module
from ding_like.pipeline.components import build_serial
from ding_like.pipeline.scheme_parts import SchemeFactories
from tests.pipeline.ray.collecting import make_worker, shipped_config, small_config
from tests.pipeline.test_serial import make_configs


@pytest.fixture
def factories(tmp_path: Path) -> SchemeFactories:
    return SchemeFactories.of(small_config(tmp_path), seed=3)


def test_they_can_be_pickled_one_by_one_and_make_the_same_parts(factories: SchemeFactories) -> None:
    copies = {
        name: pickle.loads(pickle.dumps(getattr(factories, name)))
        for name in ("algo", "actor", "storage", "train_envs", "test_envs")
    }

    policy, own = copies["actor"]("cpu"), factories.actor("cpu")
    envs, own_envs = copies["train_envs"]("cpu", 2, 1), factories.train_envs("cpu", 2, 1)
    for each in (envs, own_envs):
        each.launch()

    state, own_state = (each.get_attribute("model").state_dict() for each in (policy, own))
    assert all(torch.equal(state[name], own_state[name]) for name in own_state)
    assert np.array_equal(envs.obs, own_envs.obs)
    assert copies["algo"]("cpu", policy).update_every == 8
    test = copies["test_envs"]("cpu", 2, 1, "test")
    assert test.num_envs == 2
    for each in (envs, own_envs, test):
        each.close()


def test_weights_begin_as_those_of_a_serial_run_in_every_worker(factories: SchemeFactories) -> None:
    parts = build_serial(factories.cfg, seed=3)
    expected = parts.policy.get_attribute("model").state_dict()
    parts.close()

    for make in (factories.actor, factories.learning_actor):
        found = make("cpu").get_attribute("model").state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_in_a_process_of_its_own_a_worker_seeds_what_its_envs_may_draw_from(
    factories: SchemeFactories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROCESS", "another one")
    drawn = []
    for index in (1, 1, 2, 3):
        make_worker(factories, index=index).stop()
        drawn.append(float(np.random.random()))

    assert drawn[0] == drawn[1] and len(set(drawn)) == 3


def test_envs_and_a_model_of_ones_own_are_used(tmp_path: Path) -> None:
    cfg = small_config(tmp_path)
    setting = get_vec_env_setting(cfg.env)
    asked = []

    def make(each: object) -> object:
        asked.append(each)
        return setting[0](each)

    factories = SchemeFactories.of(cfg, seed=0, env_setting=(make, setting[1][:2], setting[2]))
    own = SchemeFactories.of(cfg, seed=0, model=factories.actor().get_attribute("model"))
    worker = make_worker(factories)

    assert worker.obs.shape == (2, 4) and len(asked) == 1 + 2
    actors = own.actor(), own.actor()
    given = {name: value.clone() for name, value in own.model.state_dict().items()}
    for actor in actors:
        state = actor.get_attribute("model").state_dict()
        assert all(torch.equal(state[name], given[name]) for name in given)
    actors[0].get_attribute("model").load_state_dict({name: value + 1 for name, value in given.items()})
    assert all(torch.equal(actors[1].get_attribute("model").state_dict()[name], given[name]) for name in given)
    worker.stop()


def test_the_envs_are_looked_at_once_and_closed(tmp_path: Path) -> None:
    cfg = small_config(tmp_path)
    env_fn, collect, evaluate = get_vec_env_setting(cfg.env)
    closed = []

    def make(each: object) -> object:
        env = env_fn(each)
        close = env.close
        env.close = lambda: (closed.append(1), close())
        return env

    SchemeFactories.of(cfg, seed=0, env_setting=(make, collect, evaluate))

    assert len(closed) == 1


def test_a_policy_that_does_not_fit_the_envs_is_refused_at_once(tmp_path: Path) -> None:
    main, create = make_configs()
    main["policy"]["model"]["obs_shape"] = 99
    cfg = compile_config({**main, "exp_name": str(tmp_path / "exp")}, create, seed=0, save=False)

    with pytest.raises(ConfigError, match="obs_shape is 99"):
        SchemeFactories.of(cfg, seed=0)


def test_an_algorithm_says_what_an_off_policy_config_says(factories: SchemeFactories) -> None:
    algo = factories.algo("cpu", factories.actor())

    assert (algo.update_every, algo.start_steps, algo.num_test_episodes, algo.test_every) == (8, 40, 2, 50)
    assert (algo.num_mini_batch, algo.mini_batch_size, algo.updates_per_iter, algo.gamma) == (2, 16, 2, 0.97)
    assert not hasattr(algo, "num_epochs") and not hasattr(algo, "lr")


def test_an_algorithm_says_what_an_on_policy_config_says_and_the_policy_follows_it(tmp_path: Path) -> None:
    factories = SchemeFactories.of(shipped_config("ppo", tmp_path), seed=0)
    policy = factories.learning_actor()
    algo = factories.algo("cpu", policy)
    worker = make_worker(factories)
    rows, _ = worker.collect_data()
    worker.stop()

    def sizes() -> list[int]:
        return [len(each) for each in policy.minibatches(TransitionBatch(rows), np.random.default_rng(0))]

    assert len(sizes()) == algo.updates_per_iter == algo.num_epochs * algo.num_mini_batch
    algo.num_epochs, algo.mini_batch_size = 2, algo.update_every // 4
    assert sizes() == [algo.update_every // 4] * 8 and algo.updates_per_iter == 8
    algo.num_mini_batch = 2
    assert len(sizes()) == algo.updates_per_iter == 4


@pytest.mark.parametrize("name", ["dqn", "sac", pytest.param("ppo", marks=pytest.mark.slow)])
def test_the_next_update_takes_a_step_of_the_learning_rate_that_was_set(name: str, tmp_path: Path) -> None:
    cfg = small_config(tmp_path, nstep=1) if name == "dqn" else shipped_config(name, tmp_path)
    factories = SchemeFactories.of(cfg, seed=0)
    policy = factories.learning_actor()
    algo = factories.algo("cpu", policy)
    worker = make_worker(factories)

    rows, _ = worker.collect_data(order=CollectRequest(False, 256, 0, None))
    worker.stop()
    batch = TransitionBatch(rows)

    def largest_step() -> float:
        before = [each.detach().clone() for each in policy.get_attribute("model").parameters()]
        policy.grad(next(policy.minibatches(batch, np.random.default_rng(0))))
        policy.apply()
        after = [each.detach() for each in policy.get_attribute("model").parameters()]
        return max(float((new - old).abs().max()) for new, old in zip(after, before, strict=True))

    algo.lr = 1e-2
    first = largest_step()
    algo.lr = 1e-6
    second = largest_step()

    # Adam's first steps are about the learning rate, whatever the gradient is.
    assert 5e-3 < first < 2e-2 and second < 5e-6 and algo.lr == 1e-6


def test_a_parameter_that_means_nothing_is_refused(factories: SchemeFactories) -> None:
    algo = factories.algo("cpu", factories.learning_actor())
    wrong = {"mini_batch_size": [0], "num_mini_batch": [True, 1.5], "gamma": [1.5], "lr": [0.0]}

    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ConfigError, match=name):
                setattr(algo, name, value)


def test_names_of_lanes_stay_within_the_seeds_that_there_are(tmp_path: Path) -> None:
    factories = SchemeFactories.of(small_config(tmp_path), seed=2**32 - 3)

    seeds = [factories.lane_seed(worker, 0) for worker in range(1, 5)]

    assert all(0 <= seed <= 2**32 - 1 - 3 for seed in seeds) and len(set(seeds)) == 4


def test_on_a_machine_without_the_runs_folder_a_worker_logs_into_one_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    factories = SchemeFactories.of(small_config(tmp_path), seed=3)
    monkeypatch.setattr(module, "_PROCESS", "another one")

    worker = make_worker(factories)

    (folder,) = (tmp_path / "tmp").iterdir()
    assert (folder / "log").is_dir() and not (tmp_path / "exp").exists()
    worker.stop()
    assert not folder.exists()
