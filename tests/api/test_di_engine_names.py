"""Names that scripts written for DI-engine import are where they look, with `ding.` read as `ding_like.`."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

# DI-engine's place -> what is there: module and name.
PLACES = {
    "config.compile_config": "ding_like.config.from_classes.compile_config",
    "config.read_config": "ding_like.config.read.read_config",
    "entry.eval": "ding_like.entry.eval_entry.eval",
    "entry.parallel_pipeline": "ding_like.entry.parallel_entry.parallel_pipeline",
    "entry.random_collect": "ding_like.pipeline.turns.random_collect",
    "entry.serial_pipeline": "ding_like.entry.serial_entry.serial_pipeline",
    "entry.serial_pipeline_onpolicy": "ding_like.entry.serial_entry.serial_pipeline_onpolicy",
    "entry.serial_pipeline_onpolicy_ppg": "ding_like.entry.serial_entry.serial_pipeline_onpolicy",
    "envs.ActionRepeatWrapper": "ding_like.envs.wrappers.suites.ActionRepeat",
    "envs.AsyncSubprocessEnvManager": "ding_like.envs.di_engine_managers.AsyncSubprocessEnvManager",
    "envs.BaseEnv": "ding_like.envs.di_engine_style.BaseEnv",
    "envs.BaseEnvManager": "ding_like.envs.di_engine_managers.BaseEnvManager",
    "envs.BaseEnvManagerV2": "ding_like.envs.di_engine_managers.BaseEnvManagerV2",
    "envs.BaseEnvTimestep": "ding_like.envs.di_engine_style.BaseEnvTimestep",
    "envs.ClipRewardWrapper": "ding_like.envs.env_wrappers.ClipRewardWrapper",
    "envs.DingEnvWrapper": "ding_like.envs.ding_env_wrapper.DingEnvWrapper",
    "envs.EpisodicLifeWrapper": "ding_like.envs.wrappers.frames.EpisodicLife",
    "envs.EvalEpisodeReturnWrapper": "ding_like.envs.wrappers.returns.EpisodeReturn",
    "envs.FireResetWrapper": "ding_like.envs.wrappers.atari.FireReset",
    "envs.FlatObsWrapper": "gymnasium.wrappers.transform_observation.FlattenObservation",
    "envs.FrameStackWrapper": "ding_like.envs.env_wrappers.FrameStackWrapper",
    "envs.MaxAndSkipWrapper": "ding_like.envs.wrappers.frames.max_and_skip",
    "envs.NoopResetWrapper": "ding_like.envs.wrappers.frames.NoopReset",
    "envs.ObsNormWrapper": "ding_like.envs.env_wrappers.ObsNormWrapper",
    "envs.ObsTransposeWrapper": "ding_like.envs.wrappers.standard.obs_transpose",
    "envs.RewardNormWrapper": "ding_like.envs.env_wrappers.RewardNormWrapper",
    "envs.ScaledFloatFrameWrapper": "ding_like.envs.wrappers.frames.scaled_float_frame",
    "envs.SubprocessEnvManager": "ding_like.envs.di_engine_managers.SubprocessEnvManager",
    "envs.SubprocessEnvManagerV2": "ding_like.envs.di_engine_managers.SubprocessEnvManagerV2",
    "envs.SyncSubprocessEnvManager": "ding_like.envs.di_engine_managers.SyncSubprocessEnvManager",
    "envs.TimeLimitWrapper": "ding_like.envs.env_wrappers.TimeLimitWrapper",
    "envs.WarpFrameWrapper": "ding_like.envs.wrappers.frames.warp_frame",
    "envs.affine_transform": "ding_like.envs.common.affine_transform",
    "envs.common.affine_transform": "ding_like.envs.common.affine_transform",
    "envs.create_env_manager": "ding_like.envs.factory.create_env_manager",
    "envs.env_wrappers.MaxAndSkipWrapper": "ding_like.envs.wrappers.frames.max_and_skip",
    "envs.get_default_wrappers": "ding_like.envs.default_wrappers.get_default_wrappers",
    "envs.get_env_cls": "ding_like.envs.factory.env_class",
    "envs.get_env_manager_cls": "ding_like.envs.di_engine_managers.get_env_manager_cls",
    "envs.get_vec_env_setting": "ding_like.envs.factory.get_vec_env_setting",
    "model.C51DQN": "ding_like.model.c51.C51DQN",
    "model.ContinuousQAC": "ding_like.model.continuous_qac.ContinuousQAC",
    "model.ConvEncoder": "ding_like.model.encoder.ConvEncoder",
    "model.DQN": "ding_like.model.dqn.DQN",
    "model.DRQN": "ding_like.model.drqn.DRQN",
    "model.DiscreteHead": "ding_like.model.head.DiscreteHead",
    "model.DiscreteQAC": "ding_like.model.discrete_qac.DiscreteQAC",
    "model.DuelingHead": "ding_like.model.head.DuelingHead",
    "model.FCEncoder": "ding_like.model.encoder.FCEncoder",
    "model.FQF": "ding_like.model.fqf.FQF",
    "model.IQN": "ding_like.model.iqn.IQN",
    "model.PDQN": "ding_like.model.pdqn.PDQN",
    "model.PG": "ding_like.model.pg.PG",
    "model.PPG": "ding_like.model.ppg.PPG",
    "model.QAC": "ding_like.model.continuous_qac.ContinuousQAC",
    "model.QMix": "ding_like.model.qmix.QMIX",
    "model.QRDQN": "ding_like.model.qrdqn.QRDQN",
    "model.RainbowDQN": "ding_like.model.rainbow.RainbowDQN",
    "model.VAC": "ding_like.model.vac.VAC",
    "policy.A2CPolicy": "ding_like.policy.a2c.A2CPolicy",
    "policy.C51Policy": "ding_like.policy.c51.C51Policy",
    "policy.DDPGPolicy": "ding_like.policy.ddpg.DDPGPolicy",
    "policy.DQNPolicy": "ding_like.policy.dqn.DQNPolicy",
    "policy.DiscreteSACPolicy": "ding_like.policy.discrete_sac.DiscreteSACPolicy",
    "policy.FQFPolicy": "ding_like.policy.fqf.FQFPolicy",
    "policy.IMPALAPolicy": "ding_like.policy.impala.IMPALAPolicy",
    "policy.IQNPolicy": "ding_like.policy.iqn.IQNPolicy",
    "policy.PDQNPolicy": "ding_like.policy.pdqn.PDQNPolicy",
    "policy.PGPolicy": "ding_like.policy.pg.PGPolicy",
    "policy.PPGPolicy": "ding_like.policy.ppg.PPGPolicy",
    "policy.PPOOffPolicy": "ding_like.policy.ppo_offpolicy.PPOOffPolicy",
    "policy.PPOPGPolicy": "ding_like.policy.pg.PGPolicy",
    "policy.PPOPolicy": "ding_like.policy.ppo.PPOPolicy",
    "policy.Policy": "ding_like.policy.base.Policy",
    "policy.QMIXPolicy": "ding_like.policy.qmix.QMIXPolicy",
    "policy.QRDQNPolicy": "ding_like.policy.qrdqn.QRDQNPolicy",
    "policy.R2D2Policy": "ding_like.policy.r2d2.R2D2Policy",
    "policy.RainbowDQNPolicy": "ding_like.policy.rainbow.RainbowPolicy",
    "policy.SACDiscretePolicy": "ding_like.policy.discrete_sac.DiscreteSACPolicy",
    "policy.SACPolicy": "ding_like.policy.sac.SACPolicy",
    "policy.TD3Policy": "ding_like.policy.td3.TD3Policy",
    "policy.create_policy": "ding_like.policy.create.create_policy",
    "policy.get_policy_cls": "ding_like.policy.create.get_policy_cls",
    "policy.single_env_forward_wrapper": "ding_like.policy.single_env.single_env_forward_wrapper",
    "rl_utils.gae": "ding_like.rl_utils.returns.gae",
    "rl_utils.get_epsilon_greedy_fn": "ding_like.rl_utils.exploration.get_epsilon_greedy_fn",
    "torch_utils.to_device": "ding_like.data.convert.to_device",
    "torch_utils.to_list": "ding_like.data.convert.to_list",
    "torch_utils.to_ndarray": "ding_like.data.convert.to_ndarray",
    "torch_utils.to_tensor": "ding_like.data.convert.to_tensor",
    "utils.EasyTimer": "ding_like.utils.timer.EasyTimer",
    "utils.build_logger": "ding_like.utils.log.build_logger",
    "utils.deep_merge_dicts": "ding_like.config.tree.deep_merge",
    "utils.one_time_warning": "ding_like.utils.log.one_time_warning",
    "utils.set_pkg_seed": "ding_like.utils.seeding.set_pkg_seed",
    "worker.AdvancedReplayBuffer": "ding_like.worker.replay_buffer.advanced.AdvancedReplayBuffer",
    "worker.BaseLearner": "ding_like.worker.learner.base.BaseLearner",
    "worker.BaseSerialCommander": "ding_like.worker.commander.base.BaseSerialCommander",
    "worker.EpisodeSerialCollector": "ding_like.worker.collector.episode.EpisodeSerialCollector",
    "worker.InteractionSerialEvaluator": "ding_like.worker.evaluator.interaction.InteractionSerialEvaluator",
    "worker.NaiveReplayBuffer": "ding_like.worker.replay_buffer.naive.NaiveReplayBuffer",
    "worker.SampleSerialCollector": "ding_like.worker.collector.sample.SampleSerialCollector",
    "worker.create_buffer": "ding_like.worker.replay_buffer.interface.create_buffer",
    "worker.create_serial_collector": "ding_like.worker.collector.interface.create_serial_collector",
    "worker.create_serial_evaluator": "ding_like.worker.evaluator.interface.create_serial_evaluator",
}
REGISTRIES = ("ENV_REGISTRY", "POLICY_REGISTRY", "MODEL_REGISTRY", "BUFFER_REGISTRY", "LEARNER_REGISTRY")
# A name of DI-engine that is not here, from each package -> a part of what the error suggests.
MISSING = {
    "config.compile_config_parallel": "parallel_pipeline",
    "data.DequeBuffer": "NaiveReplayBuffer",
    "entry.serial_pipeline_bc": "serial_pipeline",
    "envs.PoolEnvManager": "type='envpool'",
    "framework.task": "serial_pipeline",
    "framework.middleware.OffPolicyLearner": "serial_pipeline",
    "model.model_wrap": "bare model",
    "policy.SQLPolicy": "DiscreteSACPolicy",
    "rl_utils.q_nstep_td_error": "nstep_td_target",
    "torch_utils.fc_block": "build_mlp",
    "utils.save_file": "save_state",
}


def fetch(place: str) -> Any:
    module, _, name = place.rpartition(".")
    namespace: dict[str, Any] = {}
    exec(f"from ding_like.{module} import {name}", namespace)
    return namespace[name]


@pytest.mark.parametrize("place", PLACES)
def test_a_name_of_di_engine_is_where_its_scripts_look(place: str) -> None:
    found = fetch(place)

    assert f"{found.__module__}.{found.__qualname__}" == PLACES[place]


@pytest.mark.parametrize("name", REGISTRIES)
def test_registries_are_in_utils(name: str) -> None:
    assert fetch(f"utils.{name}") is getattr(importlib.import_module("ding_like.utils.registries"), name)


@pytest.mark.parametrize("place", MISSING)
def test_a_name_that_is_missing_says_what_to_use(place: str) -> None:
    with pytest.raises(ImportError, match=MISSING[place]):
        fetch(place)


@pytest.mark.parametrize(
    "package", ["config", "data", "entry", "envs", "model", "policy", "rl_utils", "torch_utils", "utils"]
)
def test_a_name_of_nobody_is_an_attribute_error(package: str) -> None:
    module = importlib.import_module(f"ding_like.{package}")

    assert not hasattr(module, "NoSuchName")


@pytest.mark.parametrize("package", ["envs", "model", "policy", "torch_utils", "utils"])
def test_all_that_a_package_lists_is_there(package: str) -> None:
    module = importlib.import_module(f"ding_like.{package}")

    missing = [name for name in module.__all__ if not hasattr(module, name)]

    assert not missing and set(module.__all__) <= set(dir(module))


def test_packages_stay_light() -> None:
    packages = ", ".join(
        f"ding_like.{name}" for name in ("envs", "utils", "worker", "entry", "torch_utils", "framework")
    )
    code = f"import sys, {packages}; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
