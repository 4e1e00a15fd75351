"""Every key of every policy's config does something, or is refused: a key without effect misleads without a word."""

from __future__ import annotations

import copy
import functools
import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import compile_config, deep_merge, to_plain
from ding_like.config.tree import get_path, set_path
from ding_like.entry import serial_pipeline
from ding_like.errors import ConfigError, TrainingError
from ding_like.policy import create_policy, get_policy_cls
from ding_like.utils import log
from ding_like.utils.bounds import declared
from tests import experts
from tests.contracts.policy_cases import CASES, Case, act, draw_obs, rows_of, tensors_of, with_expert

# Of teams; all but the first learn in epochs.
BY_AGENT = ("idqn", "ippo", "mappo", "ippo_recurrent", "mappo_recurrent", "happo")
# One case for each policy, named like it, and one of continuous actions for the keys that concern them.
POLICIES = [
    *("dqn", "mdqn", "sql", "c51", "qrdqn", "iqn", "fqf", "rainbow", "r2d2", "drqn", "ngu"),
    *("vdn", "qmix", "wqmix", "qtran", "coma"),
    *("pqn", "ppo", "ppo_offpolicy", "a2c", "ddpg", "d4pg", "td3", "sac", "tqc", "crossq"),
    *("ppo_recurrent", "impala"),
    *BY_AGENT,
    "image_classification",
    *("discrete_sac", "sqn", "pg", "ppg", "ppg_offpolicy"),
    "sac_recurrent",
    "pdqn",
    *("sqil", "sqil_dqn", "sqil_sac", "dqfd", "r2d3"),
    "bc",
    "dagger",
    *("bcq", "cql", "discrete_bcq", "discrete_cql"),
    *("td3_bc", "rebrac", "iql", "edac"),
    "dt",
    *("maddpg", "maddpg box", "matd3", "masac", "masac_discrete"),
]
# What a run sets or chooses, and sections of other classes' keys, which their own tests walk.
NOT_HERE = (
    *("type", "cfg_type", "action_space", "model", "eval", "other.replay_buffer.replay_buffer_size"),
    "other.replay_buffer.type",
    "learn.epochs",  # of the digits, counted by their own loop
    "learn.train_epoch",  # of runs from a file: tests/entry/test_data_set.py
    "rtg_target",  # moves a new network's choices too little: tests/policy/test_dt.py
    "collect.model_path",  # of the expert: tests/policy/test_dagger.py
)
# key: (another value, what must be set beside it)
VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "loss_type": ("l1_loss", {}),
    "learn.ce_label_smooth": (0.3, {}),
    "learn.lagrange_thresh": (5.0, {"learn.with_lagrange": True}),
    "learn.learning_rate_vae": (0.02, {}),
    "learn.lmbda": (0.1, {}),
    "learn.logit_weight": (9.0, {}),
    "learn.min_q_version": (2, {}),
    "learn.min_q_weight": (5.0, {}),
    "learn.num_actions": (3, {}),
    "learn.threshold": (0.99, {}),
    "learn.with_lagrange": (True, {}),
    "rtg_scale": (0.5, {}),
    "context_len": (2, {}),
    "warmup_steps": (50, {}),
    "entropy_tau": (0.5, {}),
    "beta": (0.7, {}),
    "learn.exploit_share": (0.5, {}),
    "discount_factor_min": (0.5, {}),
    "m_alpha": (0.3, {}),
    "m_clip": (-0.001, {}),
    "learn.num_dropped": (0, {}),
    "collect.q_lambda": (0.2, {}),
    "learn.actor_beta": (2.0, {}),
    "learn.critic_beta": (2.0, {}),
    "learn.tau": (0.9, {}),
    "learn.beta": (1.0, {}),
    "learn.max_weight": (0.01, {}),
    "learn.eta": (5.0, {}),
    "learn.with_q_entropy": ("flip", {}),
    "learn.learning_rate_value": (0.02, {}),
    "on_policy": ("flip", {}),
    "cuda": (True, {}),
    "priority": ("flip", {}),
    "priority_IS_weight": ("flip", {"priority": True}),
    "discount_factor": (0.5, {}),
    "nstep": (4, {}),
    "random_collect_size": (40, {}),
    "action_low": (-9.0, {"action_high": 9.0}),
    "action_high": (9.0, {"action_low": -9.0}),
    "action_bound": ("tanh", {}),
    "recompute_adv": (True, {}),
    "double": (
        False,
        {"learn.learning_rate": 0.2, "learn.learning_rate_quantile": 0.2, "learn.target_update_freq": 100},
    ),
    "learn.expert_share": (0.75, {}),
    "learn.pretrain_updates": (7, {}),
    "learn.expert_margin": (0.0, {"learn.lambda2": 3.0}),
    "learn.lambda1": (0.1, {}),
    "learn.lambda2": (3.0, {}),
    "collect.data_path": ("other.safetensors", {}),
    "learn.update_per_collect": (2, {}),
    "learn.batch_size": (8, {}),
    "learn.learning_rate": (0.02, {}),
    "learn.ignore_done": (True, {}),
    "learn.grad_clip_norm": (1e-3, {"learn.optimizer.eps": 0.1}),  # Adam alone forgets the gradient's scale
    "learn.grad_clip_type": ("clip_value", {}),
    "learn.grad_clip_value": (1e-3, {"learn.optimizer.eps": 0.1, "learn.adam_eps": None}),
    "learn.nonfinite": ("raise", {}),
    "learn.max_nonfinite_steps": (2, {}),
    "learn.optimizer.type": ("rmsprop", {}),
    "learn.optimizer.betas": ([0.5, 0.9], {}),
    "learn.optimizer.eps": (0.1, {"learn.adam_eps": None}),
    "learn.optimizer.weight_decay": (0.5, {}),
    "learn.optimizer.alpha": (0.5, {"learn.optimizer.type": "rmsprop"}),
    "learn.optimizer.momentum": (0.9, {"learn.optimizer.type": "rmsprop"}),
    "learn.adam_eps": (0.1, {}),
    "learn.schedule.env_steps": (30, {}),
    "learn.schedule.lr_end": (1e-6, {"learn.schedule.env_steps": 30}),
    "learn.schedule.clip_end": (
        1e-6,
        {"learn.schedule.env_steps": 30, "learn.schedule.lr_end": 0.02, "learn.learning_rate": 0.02},
    ),
    "learn.seq_len": (2, {}),
    "learn.lambda_": (0.5, {}),
    "learn.rho_clip_ratio": (0.5, {}),
    "learn.c_clip_ratio": (0.5, {}),
    "learn.rho_pg_clip_ratio": (0.5, {}),
    "learn.discount_factor": (0.5, {}),
    "learn.clip_value": (1e-3, {"learn.optimizer.eps": 0.1, "learn.adam_eps": None}),
    "learn.value_weight": (0.05, {}),
    "learn.entropy_weight": (0.5, {}),
    "learn.aux_freq": (1, {}),
    "learn.aux_train_epoch": (3, {}),
    "learn.aux_bc_weight": (9.0, {"learn.learning_rate": 0.02}),
    "learn.adv_norm": (None, {}),  # flipped
    "learn.epoch_per_collect": (3, {}),
    "learn.clip_ratio": (1e-3, {"learn.learning_rate": 0.02}),
    "learn.dual_clip": (1.001, {"learn.learning_rate": 0.1}),
    "learn.kl_beta": (0.5, {"learn.learning_rate": 0.02}),
    "learn.value_clip": (1e-4, {"learn.learning_rate": 0.02}),
    "learn.value_norm": (True, {}),
    "learn.target_kl": (1e-9, {"learn.learning_rate": 0.02}),
    "learn.ppo_param_init": (False, {}),
    "learn.backend": ("flip", {}),
    "learn.statistics_theta": (0.5, {}),
    "learn.renorm_warmup": (0, {}),
    "learn.target_update_freq": (1, {}),
    "learn.target_theta": (0.5, {}),
    "learn.value_rescale": ("flip", {}),
    "burnin_step": (1, {}),
    "learn_unroll_len": (5, {}),
    "unroll_len": (2, {}),
    "learn.loss": ("huber", {}),
    "learn.kappa": (0.1, {}),
    "learn.num_quantiles": (3, {}),
    "learn.num_target_quantiles": (3, {}),
    "learn.ent_coef": (0.5, {}),
    "learn.learning_rate_fraction": (0.02, {}),
    "learn.learning_rate_quantile": (0.02, {}),
    "learn.learning_rate_actor": (0.02, {}),
    "learn.learning_rate_critic": (0.02, {}),
    "learn.learning_rate_q": (0.02, {}),
    "learn.learning_rate_dis": (0.02, {}),
    "learn.learning_rate_cont": (0.02, {}),
    "learn.update_circle": (4, {}),
    "collect.noise": (False, {}),
    "learn.learning_rate_policy": (0.02, {}),
    "learn.learning_rate_alpha": (0.02, {}),
    "learn.actor_update_freq": (1, {}),
    "learn.noise": (False, {}),
    "learn.noise_sigma": (0.01, {}),
    "learn.noise_range.min": (-0.01, {}),
    "learn.noise_range.max": (0.01, {}),
    "learn.alpha": (0.9, {}),
    "learn.auto_alpha": (False, {}),
    "learn.log_space": (False, {}),
    "learn.target_entropy": (-7.0, {}),
    "learn.data_share": (0.9, {}),
    "learn.weighting": ("centrally", {"learn.learning_rate": 0.02}),
    "learn.opt_weight": (9.0, {}),
    "learn.nopt_weight": (9.0, {}),
    "learn.actor_reg": (0.5, {}),
    "learn.gumbel_tau": (0.3, {}),
    "learn.alpha_by_agent": (False, {}),
    "collect.n_sample": (24, {}),
    "collect.n_episode": (3, {}),
    "collect.unroll_len": (7, {}),
    "collect.discount_factor": (0.5, {}),
    "collect.gae_lambda": (0.1, {}),
    "collect.noise_sigma": (0.9, {}),
    "other.eps.type": ("linear", {"other.eps.start": 0.9}),
    "other.eps.start": (0.5, {}),
    "other.eps.end": (0.5, {}),
    "other.eps.decay": (5, {"other.eps.start": 0.9}),
    "other.beta.type": ("linear", {}),
    "other.beta.start": (0.5, {}),
    "other.beta.end": (0.5, {}),
    "other.beta.decay": (5, {}),
}
# Read by pipelines alone: what changes is a run.
OF_A_RUN = (
    *("learn.update_per_collect", "random_collect_size"),
    *("learn.expert_share", "learn.pretrain_updates", "collect.data_path", "learn.data_share"),
)


def leaves(tree: Any, path: str = "") -> Iterator[str]:
    for key, value in tree.items():
        here = f"{path}.{key}" if path else key
        if here in NOT_HERE or here.startswith("model."):
            continue
        if isinstance(value, dict):
            yield from leaves(value, here)
        else:
            yield here


def class_of(name: str) -> type[Any]:
    return get_policy_cls({"type": CASES[name].policy, "import_names": list(CASES[name].import_names)})


def defaults_of(name: str) -> dict[str, Any]:
    return to_plain(class_of(name).default_config())


def without_effect(name: str) -> Mapping[str, str]:
    """Return the keys of DI-engine's configs that change nothing, with the reasons that a user gets."""
    reasons: Mapping[str, str] = declared(class_of(name), "without_effect")
    return reasons


def section_of(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return a policy section that was checked as that of a run is, its model filled in; raises ConfigError."""
    case = CASES[name]
    settings = copy.deepcopy(case.settings)
    user: dict[str, Any] = {}
    for path, value in changes.items():
        set_path(user, path, value)
    if case.policy in ("ppo", "ppg", "ppo_recurrent", *BY_AGENT[1:]):
        user = deep_merge(dict(learn=dict(epoch_per_collect=2)), user)
    for module in case.import_names:  # not named in the config, which would be read with DI-engine's tolerance
        importlib.import_module(module)
    main = dict(env=dict(env_id="CartPole-v1"), policy=deep_merge(settings, user))
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=case.policy))
    cfg = to_plain(compile_config(main, create, save=False).policy)
    if settings.get("action_space") is None and case.space is not None:
        cfg["action_space"] = "discrete"
    return cfg


def effects(case: Case, cfg: dict[str, Any]) -> dict[str, Any]:
    """Return what a policy of this config does: how it acts, makes rows, learns, explores and takes bad gradients."""
    torch.manual_seed(0)
    policy = with_expert(create_policy(cfg))
    learn = policy.learn_mode
    seen: dict[str, Any] = {"device": str(policy._device), "by_hand": getattr(policy, "_by_hand", None) is not None}
    seen["attributes"] = [policy.get_attribute(name) for name in ("n_sample", "n_episode", "batch_size")]
    if case.space is not None:
        for step in (0, 7):
            setting = policy.command_mode.get_setting_collect({"envstep": step})
            obs = draw_obs(case, 16, np.random.default_rng(0))
            seen[f"acts {step}"] = [tensors_of(act(policy.collect_mode.actor, obs, 16, **setting)), setting]
    priorities, sizes = [], []
    batches = [rows_of(case, policy, seed=seed) for seed in range(2)]
    for seed, batch in enumerate([*batches, *batches]):  # the second time its rows are old
        seen[f"rows {seed}"] = dict(batch.columns)
        batch = batch.with_columns(weight=np.linspace(0.1, 2.0, len(batch)).astype(np.float32))
        if "expert_share" in cfg["learn"]:
            batch = batch.with_columns(is_expert=np.arange(len(batch)) % 2 == 0)
        for minibatch in learn.minibatches(batch, np.random.default_rng(seed)):
            sizes.append(len(minibatch))
            priorities.append(learn.grad(minibatch)[1])
            learn.apply()
    seen["weights"], seen["sizes"] = tensors_of(learn.state_dict()), sizes
    seen["priorities"] = [None if priority is None else priority.tolist() for priority in priorities]
    seen["bad"] = bad_gradients(policy)
    return seen


def bad_gradients(policy: Any) -> int:
    """Return how many updates in a row that are not finite end a run."""
    for number in range(1, 9):
        for optimizer in policy._optimizers():
            optimizer.params.grad_vector.fill_(float("nan"))
            optimizer.step(torch.zeros(()))
        try:
            policy.get_attribute("nonfinite_steps")
        except TrainingError:
            return number
    return 0


def differ(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() != other.keys() or any(differ(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) != len(other) or any(differ(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, (torch.Tensor, np.ndarray)):
        first, second = np.asarray(one), np.asarray(other)
        return first.shape != second.shape or not np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return bool(one != other)


# Other values where those of VALUES are the default, or come to the same.
_DDPG = ("ddpg", "d4pg", "maddpg", "maddpg box")
OF_POLICY = {
    **{(name, f"learn.{freq}_update_freq"): 2 for name in _DDPG for freq in ("actor", "target")},
    **{(name, "learn.noise"): True for name in _DDPG},
    ("discrete_bcq", "learn.loss"): "mse",
    **{(name, "learn.value_norm"): False for name in ("mappo", "mappo_recurrent", "happo")},
}


def changed(name: str, key: str) -> dict[str, Any]:
    """Return the changes that give the key another value, and what must stand beside it."""
    value, beside = VALUES[key]
    value = OF_POLICY.get((name, key), value)
    default = get_path(defaults_of(name), key)
    if key == "learn.adv_norm":
        value = not default
    elif value == "flip":
        value = not default if isinstance(default, bool) else "auto" if default == "autograd" else "autograd"
    known = set(leaves(defaults_of(name)))
    if "learn.learning_rate_quantile" in known:  # FQF refuses the other
        known.discard("learn.learning_rate")
    return {**{path: other for path, other in beside.items() if path in known}, key: value}


# In the suite each key is changed once, for the first of these policies that has it, which are one of a family each.
FIRST = ["dqn", "ppo", "sac", "r2d2", *POLICIES]
OF_A_BOX = ("action_low", "action_high", "action_bound")


def owner_of(key: str) -> str:
    if key in OF_A_BOX:
        return "ppo box"
    return next(name for name in FIRST if key in leaves(defaults_of(name)) and key not in without_effect(name))


def fault_of(name: str, key: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return what is wrong: another value of a key changes nothing, and is not refused by its name either."""
    monkeypatch.setattr(log, "_warned", set())
    caplog.clear()
    changes = changed(name, key)
    if changes[key] == get_path(defaults_of(name), key):
        return "the other value is the default"
    beside = {path: value for path, value in changes.items() if path != key}
    try:
        cfg = section_of(name, changes)
        if key in OF_A_RUN:
            return None if differ(run(name, {}), run(name, {key: changes[key]})) else "does nothing"
        other = effects(CASES[name], cfg)
    except ConfigError as error:
        # Refused by its name, or by that of what it needs, so that the reader knows which key is meant.
        names = "|".join(path.rpartition(".")[2] for path in changes)
        return None if re.search(rf"\b({names})\b", str(error)) else str(error)
    if f"policy.{key} is {changes[key]!r}, but has no effect" in caplog.text:
        return None
    if key in ("action_low", "action_high"):  # one alone is no range
        beside = {}
    return None if differ(effects_of(name, tuple(beside.items())), other) else "does nothing"


def test_every_key_of_every_policy_has_another_value_here() -> None:
    known = {key for name in POLICIES for key in leaves(defaults_of(name)) if key not in without_effect(name)}

    assert known - set(VALUES) == set()


@pytest.mark.usefixtures("in_tmp", "no_pictures")
@pytest.mark.parametrize("key", VALUES)
def test_another_value_changes_something_or_is_refused(
    key: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = owner_of(key)

    assert fault_of(name, key, caplog, monkeypatch) is None, name


@pytest.mark.slow
@pytest.mark.usefixtures("in_tmp", "no_pictures")
@pytest.mark.parametrize("name", [*POLICIES, "ppo box", "a2c box"])
def test_another_value_of_every_key_changes_something_or_is_refused(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Learned from a data set, which is not what `run` does: tests/entry/test_data_set.py.
    is_offline = class_of(name).run_mode == "serial_offline"
    of_its_run = OF_A_RUN if is_offline else ()
    keys = [key for key in leaves(defaults_of(name)) if key not in (*without_effect(name), *of_its_run)]
    found = {key: fault_of(name, key, caplog, monkeypatch) for key in (OF_A_BOX if name.endswith("box") else keys)}

    assert {key: fault for key, fault in found.items() if fault} == {}


@functools.cache
def effects_of(name: str, changes: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return effects(CASES[name], section_of(name, dict(changes)))


def run(name: str, changes: dict[str, Any]) -> Any:
    """Return the end of a short run on CartPole, Pendulum or the two-step game."""
    case = CASES[name]
    small: dict[str, Any] = dict(
        random_collect_size=0, learn=dict(batch_size=8), eval=dict(evaluator=dict(eval_freq=99))
    )
    for path, value in changes.items():
        set_path(small, path, value)
    envs = dict(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1)
    if name in ("vdn", "qmix", "wqmix", "qtran", "coma", "maddpg", "masac_discrete", *BY_AGENT):
        env, chosen = envs, dict(type="two_step_game", import_names=["dizoo.multi_agent.two_step_game"])
    elif name in ("maddpg box", "matd3", "masac"):
        env, chosen = envs, dict(type="tests.policy.sum_game:SumGame")
    elif name == "pdqn":
        env = dict(envs, max_episode_steps=10)
        chosen = dict(type="gym_hybrid", import_names=["dizoo.gym_hybrid.envs.gym_hybrid_env"])
    else:
        box = name in ("ddpg", "d4pg", "td3", "sac", "sac_recurrent", "tqc", "crossq", "sqil_sac", "bcq", "cql")
        env, chosen = (
            dict(envs, env_id="Pendulum-v1" if box else "CartPole-v1", max_episode_steps=10),
            dict(type="gymnasium"),
        )
    if "data_path" in defaults_of(name)["collect"]:
        write = experts.pendulum if box else experts.cartpole
        for seed, file in enumerate(("expert.safetensors", "other.safetensors")):
            write(file, episodes=1, first_seed=seed)
        small = deep_merge(dict(collect=dict(data_path="expert.safetensors")), small)
    create = dict(env=chosen, env_manager=dict(type="base"), policy=dict(type=case.policy))
    if name == "dagger":
        dqn = {**create, "policy": dict(type="dqn")}
        serial_pipeline((dict(exp_name="expert", env=env, policy={}), dqn), seed=0, max_env_step=80)
        set_path(small, "collect.model_path", str(max(Path().glob("expert*"))))
    policy = serial_pipeline((dict(exp_name="exp", env=env, policy=small), create), seed=0, max_env_step=80)
    return tensors_of(policy.learn_mode.state_dict())
