"""Names that scripts written for DI-engine import are where they look, with `ding.` read as `ding_like.`."""

from __future__ import annotations

import importlib
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium import spaces

from ding_like.errors import ConfigError, SchemaError
from ding_like.policy import DQNPolicy, PolicyFactory, get_random_policy
from ding_like.rl_utils import get_nstep_return_data, get_train_sample, q_nstep_td_data, q_nstep_td_error
from ding_like.torch_utils import Adam
from ding_like.utils import read_file, save_file
from ding_like.utils.data import default_collate, default_decollate
from ding_like.worker import AdvancedReplayBuffer, BaseLearner

# Package of DI-engine -> names that its scripts import from it.
NAMES = {
    "config": "compile_config compile_config_parallel read_config",
    "entry": "collect_demo_data eval parallel_pipeline random_collect serial_pipeline serial_pipeline_onpolicy",
    "envs": """
        AsyncSubprocessEnvManager BaseEnv BaseEnvManager BaseEnvManagerV2 BaseEnvTimestep
        DingEnvWrapper FrameStackWrapper RewardNormWrapper SubprocessEnvManager
        SubprocessEnvManagerV2 SyncSubprocessEnvManager TimeLimitWrapper affine_transform create_env_manager
        get_default_wrappers get_env_manager_cls get_vec_env_setting
    """,
    "envs.common": "affine_transform",
    "model": """
        C51DQN ContinuousQAC ConvEncoder DQN DRQN DiscreteHead DiscreteQAC DuelingHead FCEncoder FQF IQN PDQN PG PPG
        COMA DecisionTransformer
        QRDQN RainbowDQN VAC model_wrap
    """,
    "policy": """
        A2CPolicy BCQPolicy C51Policy CQLPolicy D4PGPolicy DDPGPolicy DQNPolicy DTPolicy DiscreteCQLPolicy
        DiscreteSACPolicy FQFPolicy IMPALAPolicy IQNPolicy
        PDQNPolicy PGPolicy PPGOffPolicy PPGPolicy PPOOffPolicy PPOPolicy Policy PolicyFactory QMIXPolicy QRDQNPolicy
        COMAPolicy EDACPolicy IQLPolicy NGUPolicy TD3BCPolicy WQMIXPolicy
        R2D2Policy
        SACPolicy SQNPolicy TD3Policy create_policy get_policy_cls get_random_policy single_env_forward_wrapper
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
    envs.ClipRewardWrapper=clip_reward envs.ObsNormWrapper=ObsNorm envs.EpisodicLifeWrapper=EpisodicLife
    envs.EvalEpisodeReturnWrapper=EpisodeReturn
    envs.FireResetWrapper=FireReset envs.FlatObsWrapper=FlattenObservation envs.MaxAndSkipWrapper=max_and_skip
    envs.NoopResetWrapper=NoopReset envs.ObsTransposeWrapper=obs_transpose
    envs.ScaledFloatFrameWrapper=scaled_float_frame envs.WarpFrameWrapper=warp_frame
    envs.env_wrappers.MaxAndSkipWrapper=max_and_skip envs.get_env_cls=env_class model.QAC=ContinuousQAC
    model.QMix=QMIX model.QTran=QTRAN model.WQMix=WQMIX policy.QTranPolicy=QTRANPolicy
    policy.PPOPGPolicy=PGPolicy policy.RainbowDQNPolicy=RainbowPolicy
    policy.SACDiscretePolicy=DiscreteSACPolicy utils.deep_merge_dicts=deep_merge
    """.split()
)
REGISTRIES = ("ENV_REGISTRY", "POLICY_REGISTRY", "MODEL_REGISTRY", "BUFFER_REGISTRY", "LEARNER_REGISTRY")
# A name of DI-engine that is not here, from each package -> a part of what the error suggests.
MISSING = {
    "config.parallel_transform": "compile_config_parallel",
    "data.DequeBuffer": "NaiveReplayBuffer",
    "envs.PoolEnvManager": "type='envpool'",
    "framework.task": "serial_pipeline",
    "framework.middleware.OffPolicyLearner": "serial_pipeline",
    "model.create_model": "MODEL_REGISTRY",
    "policy.AveragedDQNPolicy": "DQNPolicy",
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


def lane(length: int, *, ends_at: int = 99) -> list[dict[str, Any]]:
    return [{"reward": torch.tensor([2.0**i]), "next_obs": i, "done": i == ends_at} for i in range(length)]


@pytest.mark.parametrize(("ends_at", "cum_reward"), [(3, False), (6, True), (99, True), (99, False)])
def test_nstep_rows_are_those_of_a_loop_over_the_window(ends_at: int, cum_reward: bool) -> None:
    data = lane(7, ends_at=ends_at)
    for i, row in enumerate(get_nstep_return_data(data, 3, cum_reward=cum_reward, gamma=0.5)):
        window = data[i : min(i + 3, ends_at + 1 if i <= ends_at else 7)]
        rewards = [float(later["reward"]) for later in window]
        summed = [sum(0.5**k * reward for k, reward in enumerate(rewards))]
        assert row["reward"].tolist() == (summed if cum_reward else rewards + [0.0] * (3 - len(window)))
        last = {"next_obs": window[-1]["next_obs"], "done": window[-1]["done"], "value_gamma": 0.5 ** len(window)}
        assert row == {**row, **last}


def test_train_samples_are_stretches_of_the_lane() -> None:
    def stretches(length: int, *args: Any) -> list[list[int]]:
        return [rows["next_obs"] for rows in get_train_sample(lane(length), 3, *args)]

    assert stretches(5) == [[0, 1, 2], [2, 3, 4]] and stretches(5, "drop") == [[0, 1, 2]]
    assert stretches(4, "null_padding") == [[0, 1, 2], [3, 3, 3]] and stretches(2) == [[0, 1, 1]]
    null = {"reward": 0, "next_obs": -1, "done": True}
    assert stretches(4, "null_padding", null) == [[0, 1, 2], [3, -1, -1]] and len(stretches(6)) == 2
    with pytest.raises(ConfigError, match="'first', expected 'last', 'drop'"):
        stretches(4, "first")


@pytest.mark.parametrize("cum_reward", [False, True])
def test_nstep_td_errors_are_those_of_a_loop_over_rows(cum_reward: bool) -> None:
    torch.manual_seed(0)
    q, next_q = (torch.randn(5, 3, requires_grad=True) for _ in range(2))
    (action, best), (weight, value_gamma) = torch.randint(3, (2, 5)), torch.rand(2, 5)
    reward, done = torch.randn(4, 5), torch.tensor([0.0, 1, 0, 1, 0])
    summed = reward[0] + 0.9 * reward[1] + 0.81 * reward[2] + 0.729 * reward[3]
    data = q_nstep_td_data(q, next_q, action, best, summed if cum_reward else reward, done, weight)

    loss, errors = q_nstep_td_error(data, 0.9, 4, cum_reward, value_gamma if cum_reward else None)

    for i in range(5):
        target = summed[i] + (1 - done[i]) * (value_gamma[i] if cum_reward else 0.9**4) * next_q[i, best[i]]
        torch.testing.assert_close(errors[i], (q[i, action[i]] - target) ** 2)
    loss.backward()
    torch.testing.assert_close(loss, (errors * weight).sum() / 5)
    assert q.grad is not None and next_q.grad is None
    with pytest.raises(SchemaError, match="the reward has shape"):
        q_nstep_td_error(data._replace(reward=reward[:3]), 0.9, 4)


def test_collated_rows_come_back() -> None:
    row = {"obs": np.ones((2, 3), np.float32), "reward": torch.ones(1), "done": True, "pair": [1.0, "x"]}
    batch = default_collate([{**row, "collate_ignore_x": None}] * 4)
    assert batch["obs"].shape == (4, 2, 3) and batch["reward"].shape == (4,) and batch["pair"][1] == ["x"] * 4
    assert batch.pop("collate_ignore_x") == [None] * 4 and default_collate([torch.ones(1)] * 4, False).shape == (4, 1)
    back = default_decollate({**batch, "prev_state": [None] * 4})[3]
    assert back["obs"].shape == (2, 3) and back["reward"].shape == (1,) and back["prev_state"] is None
    assert (back["done"].dtype, back["pair"]) == (torch.bool, [torch.tensor([1.0]), "x"])
    for bad in ([], [{"a": 1}, {"b": 1}], [[1], [1, 2]], [None], [torch.ones(2), torch.ones(3)]):
        with pytest.raises(SchemaError, match="default_collate got"):
            default_collate(bad)


def test_random_policies_draw_from_the_space_or_call_the_function() -> None:
    cfg = DQNPolicy.default_config()
    cfg.model = EasyDict(obs_shape=2, action_shape=3)
    mode, env = DQNPolicy(cfg).collect_mode, SimpleNamespace(action_space=spaces.Discrete(3))
    drawn = get_random_policy(EasyDict(policy={}), mode, env).forward(dict.fromkeys(range(50), np.zeros(2)))
    assert {int(row["action"]) for row in drawn.values()} == {0, 1, 2}
    own = PolicyFactory.get_random_policy(mode, forward_fn=lambda obs: {i: {"action": np.int64(7)} for i in obs})
    acted = own.actor.act(np.zeros((2, 2)), lanes=np.arange(2), is_first=np.zeros(2, bool), rng=np.random.default_rng())
    assert acted["action"].tolist() == [7, 7] and own.segment == mode.segment
    with pytest.raises(ConfigError, match="needs action_space, or forward_fn"):
        PolicyFactory.get_random_policy(mode)


@pytest.mark.parametrize(("kind", "clipped"), [(None, [3.0, 4]), ("clip_norm", [0.6, 0.8]), ("clip_value", [1.0, 1])])
def test_adam_steps_by_the_clipped_gradient(kind: Any, clipped: list[float]) -> None:
    ours, theirs = (torch.zeros(2, requires_grad=True) for _ in range(2))
    ours.grad, theirs.grad = torch.tensor([3.0, 4.0]), torch.tensor(clipped)
    # An eps of this size, or Adam's first step would not depend on the gradient's size.
    copied = deepcopy(Adam([ours], lr=0.1, eps=1.0, grad_clip_type=kind, clip_value=1.0))
    copied.step()
    torch.optim.Adam([theirs], lr=0.1, eps=1.0).step()

    torch.testing.assert_close(copied.param_groups[0]["params"][0], theirs)
    with pytest.raises(ConfigError, match="clip_value is None, expected"):
        Adam([ours], grad_clip_type="clip_norm")


def test_files_buffers_and_learners(tmp_path: Path) -> None:
    save_file(str(tmp_path / "x.pkl"), [{"obs": np.arange(3.0)}], use_lock=True)
    assert read_file(str(tmp_path / "x.pkl"))[0]["obs"].tolist() == [0, 1, 2]
    assert AdvancedReplayBuffer({"alpha": 0.3}).alpha == 0.3
    learner = BaseLearner({}, exp_name=str(tmp_path))
    learner.logger.setLevel("DEBUG")
    learner.debug("seen")
    learner.close()
    assert any("seen" in path.read_text() for path in tmp_path.rglob("*.txt"))
