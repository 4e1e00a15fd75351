"""Names that scripts written for DI-engine import are where they look, with `ding.` read as `ding_like.`."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

# Package of DI-engine -> names that its scripts import from it.
NAMES = {
    "config": "compile_config compile_config_parallel read_config",
    "entry": "collect_demo_data eval parallel_pipeline random_collect serial_pipeline serial_pipeline_onpolicy",
    "envs": """
        AsyncSubprocessEnvManager BaseEnv BaseEnvManager BaseEnvManagerV2 BaseEnvTimestep ClipRewardWrapper
        DingEnvWrapper FrameStackWrapper ObsNormWrapper RewardNormWrapper SubprocessEnvManager
        SubprocessEnvManagerV2 SyncSubprocessEnvManager TimeLimitWrapper affine_transform create_env_manager
        get_default_wrappers get_env_manager_cls get_vec_env_setting
    """,
    "envs.common": "affine_transform",
    "model": """
        C51DQN ContinuousQAC ConvEncoder DQN DRQN DiscreteHead DiscreteQAC DuelingHead FCEncoder FQF IQN PDQN PG PPG
        QRDQN RainbowDQN VAC model_wrap
    """,
    "policy": """
        A2CPolicy C51Policy DDPGPolicy DQNPolicy DiscreteSACPolicy FQFPolicy IMPALAPolicy IQNPolicy PDQNPolicy
        PGPolicy PPGPolicy PPOOffPolicy PPOPolicy Policy PolicyFactory QMIXPolicy QRDQNPolicy R2D2Policy SACPolicy
        TD3Policy create_policy get_policy_cls get_random_policy single_env_forward_wrapper
    """,
    "rl_utils": "gae get_epsilon_greedy_fn get_nstep_return_data get_train_sample q_nstep_td_data q_nstep_td_error",
    "torch_utils": "Adam to_device to_list to_ndarray to_tensor",
    "utils": "EasyTimer build_logger one_time_warning read_file save_file set_pkg_seed",
    "utils.data": "default_collate default_decollate",
    "worker": """
        AdvancedReplayBuffer BaseLearner BaseSerialCommander EpisodeSerialCollector InteractionSerialEvaluator
        NaiveReplayBuffer SampleSerialCollector create_buffer create_serial_collector create_serial_evaluator
    """,
}
# Those that are another name for one of ours.
ALIASES = dict(
    pair.split("=")
    for pair in """
    entry.serial_pipeline_onpolicy_ppg=serial_pipeline_onpolicy envs.ActionRepeatWrapper=ActionRepeat
    envs.EpisodicLifeWrapper=EpisodicLife envs.EvalEpisodeReturnWrapper=EpisodeReturn
    envs.FireResetWrapper=FireReset envs.FlatObsWrapper=FlattenObservation envs.MaxAndSkipWrapper=max_and_skip
    envs.NoopResetWrapper=NoopReset envs.ObsTransposeWrapper=obs_transpose
    envs.ScaledFloatFrameWrapper=scaled_float_frame envs.WarpFrameWrapper=warp_frame
    envs.env_wrappers.MaxAndSkipWrapper=max_and_skip envs.get_env_cls=env_class model.QAC=ContinuousQAC
    model.QMix=QMIX policy.PPOPGPolicy=PGPolicy policy.RainbowDQNPolicy=RainbowPolicy
    policy.SACDiscretePolicy=DiscreteSACPolicy utils.deep_merge_dicts=deep_merge
    """.split()
)
REGISTRIES = ("ENV_REGISTRY", "POLICY_REGISTRY", "MODEL_REGISTRY", "BUFFER_REGISTRY", "LEARNER_REGISTRY")
# A name of DI-engine that is not here, from each package -> a part of what the error suggests.
MISSING = {
    "config.parallel_transform": "compile_config_parallel",
    "data.DequeBuffer": "NaiveReplayBuffer",
    "entry.serial_pipeline_bc": "serial_pipeline",
    "envs.PoolEnvManager": "type='envpool'",
    "framework.task": "serial_pipeline",
    "framework.middleware.OffPolicyLearner": "serial_pipeline",
    "model.create_model": "MODEL_REGISTRY",
    "policy.SQLPolicy": "DiscreteSACPolicy",
    "rl_utils.q_1step_td_error": "q_nstep_td_error",
    "torch_utils.fc_block": "build_mlp",
    "utils.lists_to_dicts": "TransitionBatch",
}


PACKAGES = ("config", "data", "entry", "envs", "model", "policy", "rl_utils", "torch_utils", "utils")


def fetch(place: str) -> Any:
    module, _, name = place.rpartition(".")
    namespace: dict[str, Any] = {}
    exec(f"from ding_like.{module} import {name}", namespace)
    return namespace[name]


def test_the_names_of_di_engine_are_where_its_scripts_look() -> None:
    expected = ALIASES | {f"{package}.{name}": name for package, names in NAMES.items() for name in names.split()}
    wrong = []
    for place, name in expected.items():
        try:
            found = fetch(place).__qualname__
        except (ImportError, AttributeError) as error:
            found = repr(error)
        wrong += [f"{place} is {found}, expected {name}"] * (found != name)
    for name in REGISTRIES:
        assert fetch(f"utils.{name}") is getattr(importlib.import_module("ding_like.utils.registries"), name)

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("place", MISSING)
def test_the_error_for_a_name_that_is_not_here_suggests_another(place: str) -> None:
    with pytest.raises(ImportError, match=MISSING[place]):
        fetch(place)


def test_packages_have_what_they_list_and_nothing_else() -> None:
    modules = {package: importlib.import_module(f"ding_like.{package}") for package in PACKAGES}
    listed = {package: getattr(module, "__all__", []) for package, module in modules.items()}

    assert [package for package, module in modules.items() if hasattr(module, "NoSuchName")] == []
    assert [(p, name) for p, names in listed.items() for name in names if not hasattr(modules[p], name)] == []
    assert [package for package, names in listed.items() if not set(names) <= set(dir(modules[package]))] == []


def test_packages_do_not_import_torch() -> None:
    packages = ", ".join(
        f"ding_like.{name}" for name in ("envs", "utils", "worker", "entry", "torch_utils", "framework")
    )
    code = f"import sys, {packages}; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
