"""compile_config in DI-engine's forms: classes, and create_cfg by keyword."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ding_like.config import FrozenConfig, compile_config, read_config, to_plain
from ding_like.envs import AsyncSubprocessEnvManager, BaseEnvManager
from ding_like.errors import ConfigError, EnvError
from ding_like.policy import DQNPolicy, PPOPolicy
from ding_like.worker import (
    AdvancedReplayBuffer,
    BaseLearner,
    EpisodeSerialCollector,
    InteractionSerialEvaluator,
    SampleSerialCollector,
)

MAIN: dict[str, Any] = dict(
    exp_name="run",
    env=dict(env_id="CartPole-v1", stop_value=100, n_evaluator_episode=3, evaluator_env_num=3),
    policy=dict(nstep=3, learn=dict(batch_size=16)),
)
CREATE: dict[str, Any] = dict(
    env=dict(type="gymnasium"),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
    replay_buffer=dict(type="advanced"),
)


def of_classes(main: Any = None, **kwargs: Any) -> Any:
    return compile_config(
        MAIN if main is None else main,
        BaseEnvManager,
        DQNPolicy,
        BaseLearner,
        SampleSerialCollector,
        InteractionSerialEvaluator,
        AdvancedReplayBuffer,
        **{"save_cfg": False, **kwargs},
    )


def test_classes_give_what_their_names_in_create_config_give() -> None:
    named = to_plain(compile_config(MAIN, CREATE, save=False))

    of_script = to_plain(of_classes())

    assert {key: of_script[key] for key in ("policy", "seed")} == {key: named[key] for key in ("policy", "seed")}


def test_the_env_section_of_a_script_takes_any_key() -> None:
    cfg = of_classes({**MAIN, "env": dict(MAIN["env"], my_own_key=3, manager=dict(shared_memory=True))})

    assert cfg.env.my_own_key == 3 and cfg.env.collector_env_num == 8
    assert cfg.policy.eval.evaluator.n_episode == 3 and cfg.policy.eval.evaluator.stop_value == 100


def test_a_typing_error_is_found_all_the_same() -> None:
    with pytest.raises(ConfigError, match="batchsize.*did you mean 'batch_size'"):
        of_classes({**MAIN, "policy": dict(learn=dict(batchsize=3))})


def test_create_cfg_by_keyword_gives_the_same_as_our_form() -> None:
    ours = compile_config(MAIN, CREATE, seed=5, save=False)

    theirs = compile_config(MAIN, seed=5, auto=True, create_cfg=CREATE, save_cfg=False)

    assert to_plain(theirs) == to_plain(ours)


def test_what_a_script_gets_can_be_changed_and_ours_cannot() -> None:
    cfg = of_classes()
    cfg.policy.learn.batch_size = 3

    assert cfg.policy.learn.batch_size == 3
    assert isinstance(compile_config(MAIN, CREATE, save=False), FrozenConfig)


def test_classes_by_keyword_and_left_out_ones_are_the_usual() -> None:
    cfg = compile_config({"exp_name": "run"}, policy=PPOPolicy, env_manager=AsyncSubprocessEnvManager, save_cfg=False)

    assert (cfg.policy.type, cfg.env.manager.type) == ("ppo", "subprocess")
    assert cfg.policy.collect.collector.type == "sample"


def test_a_collector_of_another_kind_is_named() -> None:
    main = {**MAIN, "policy": dict(collect=dict(n_episode=4))}

    cfg = compile_config(main, BaseEnvManager, DQNPolicy, collector=EpisodeSerialCollector, save_cfg=False)

    assert cfg.policy.collect.collector.type == "episode"


class OwnDQN(DQNPolicy):
    config = dict(learn=dict(batch_size=48))


def test_a_class_that_is_not_registered_brings_its_defaults() -> None:
    cfg = compile_config({"exp_name": "run"}, BaseEnvManager, OwnDQN, save_cfg=False)

    assert cfg.policy.type == "OwnDQN" and cfg.policy.learn.batch_size == 48


def test_the_config_is_saved_and_says_that_the_script_made_the_envs() -> None:
    cfg = of_classes(save_cfg=True)
    saved = read_config(Path(cfg.exp_name) / "total_config.py")

    from ding_like.envs import make_env

    with pytest.raises(EnvError, match="script that makes its envs itself"):
        make_env(saved.main_config["env"] | {"type": saved.create_config["env"]["type"]})


def test_without_a_policy_the_error_names_both_ways() -> None:
    with pytest.raises(ConfigError, match="create_cfg=create_config"):
        compile_config(MAIN, auto=True)
    with pytest.raises(ConfigError, match="create_cfg names none"):
        compile_config(MAIN, auto=True, create_cfg=dict(env=dict(type="gymnasium")))


def test_an_object_in_the_place_of_a_class_is_an_error() -> None:
    with pytest.raises(ConfigError, match="a class for learner, got str 'base'"):
        compile_config(MAIN, BaseEnvManager, DQNPolicy, "base", save_cfg=False)  # type: ignore[arg-type]
