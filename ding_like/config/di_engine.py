"""Defaults of DI-engine for keys that a config of it leaves out, and its policies that are not here.

`create_config.defaults = "di_engine"` (`--di-engine` on the command line) puts these defaults between ours and what the
user set. They are what `default_config()` of the classes of DI-engine 0.5.3 returns, printed by running them, unless
another source stands beside them; an env class has its own, `di_engine_defaults`. Left out is what means the same under
another name, and what `docs/di_engine_defaults.md` lists as not taken; that page is written from this file.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ding_like.config.report import Fault, suggestion
from ding_like.config.tree import Tree, get_path, items, join, set_path
from ding_like.types import Config
from ding_like.utils.registries import did_you_mean

# Path patterns ("*" matches any text, dots included) -> why they are not needed, or what to use instead.
_REASONS: dict[str, str] = {
    "*cfg_type": "the class is named by its type in create_config",
    "wandb_logger": "metrics go to metrics.jsonl and TensorBoard",
    "env.env_id": "this env fixes its id; any gymnasium id runs with create_config.env.type='gymnasium'",
    "env.use_act_scale env.act_scale": "actions are scaled to the action space of the env",
    "env.env_wrapper": "the env of a suite brings its own wrappers; more go into env.wrappers",
    "env.exp_name": "exp_name stands at the top of main_config",
    "env.collector_batch_size env.evaluator_batch_size env.manager.wait_num": (
        "every step takes the lanes that are ready"
    ),
    "env.is_train": "collector and evaluator envs are built apart",
    "env.replay_path": "give --replay-path on the command line",
    "env.save_replay": "set env.replay_path of an env that has it, or give --replay-path on the command line",
    "env.collector_episode_num": "collect.n_sample or collect.n_episode says how much is collected",
    "env.evaluator_episode_num": "use env.n_evaluator_episode, the episodes of all envs together",
    "env.manager.episode_num": "evaluator.n_episode or collect.n_episode says how many episodes are played",
    "env.manager.max_retry env.manager.retry_type env.manager.retry_waiting_time": (
        "a broken env is restarted and its open episode dropped"
    ),
    "env.manager.auto_reset env.manager.reset_inplace": "an ended lane always resets itself",
    "env.manager.step_timeout env.manager.step_wait_timeout": "use step_timeout_s of a manager that has a deadline",
    "env.manager.reset_timeout env.manager.connect_timeout": "use reset_timeout_s of a manager that has a deadline",
    "env.manager.shared_memory env.manager.copy_on_get": "the manager decides how observations travel",
    "env.manager.context": "env processes are always spawned",
    "env.manager.force_reproducibility": "seeds alone decide what an env does",
    "env.manager.env_num": "use env.collector_env_num and env.evaluator_env_num",
    "policy*.multi_gpu policy.learn.learner.learner_num": "the pipeline decides how many learners there are",
    "policy.traj_len_inf policy.collect.traj_len_inf": "the policy decides how long a stretch it makes rows of",
    "policy.bp_update_sync": "gradients are averaged in every step",
    "policy.load_path policy.learn.learner.load_path": "give --load-path on the command line",
    "policy.command": "a commander has no settings of the policy's",
    "policy.multi_agent": "the policy's type says whose it is: those of teams are in docs/teams.md",
    "policy.agent_num": "the env says how many agents there are",
    "policy.deterministic_eval": "an evaluation takes the likeliest actions",
    "policy.transition_with_policy_data policy.collect.collector_logit": "rows hold what the policy declares",
    "policy.collect.env_num policy.collect.collector_env_num": "use env.collector_env_num",
    "policy.collect.noise_sigma": "the policy draws its actions: it explores without noise",
    "policy.collect.state_dict_path": "give --load-path to start from a checkpoint",
    "policy.collect.model_path policy.collect.data_path policy.collect.expert_data_path": (
        "of policies and reward models that learn from an expert"
    ),
    "policy.learn.expert_replay_buffer_size": "all steps of the demonstrations are kept",
    "policy.collect.demonstration_info_path": "demonstrations are one file, which `ding collect` writes",
    "policy.collect.data_type policy.collect.save_path policy.collect.collect_count policy.expert_random_collect_size "
    "reward_model.collect_count": "expert.num_episodes says how much an expert plays",
    "reward_model.input_size reward_model.obs_shape reward_model.action_shape reward_model.action_size": (
        "the env says how large observations and actions are"
    ),
    "reward_model.reward_model_path": "checkpoints of the run hold the reward model",
    "reward_model.expert_model_path reward_model.expert_data_path reward_model.offline_data_path "
    "reward_model.bc_path": ("this reward model learns without an expert, or from demonstrations alone"),
    "reward_model.clear_buffer_per_iters reward_model.clear_buffer_per_train_iters "
    "reward_model.target_new_data_count": (
        "a reward model learns from the batches that the policy learns from, and keeps none"
    ),
    "reward_model.exp_name": "exp_name stands at the top of main_config",
    "reward_model.continuous reward_model.discrete_action": "the env says which kind of actions it takes",
    "reward_model.algo_for_model reward_model.env_id": "expert.config says what the expert is, and where it plays",
    "reward_model.load_path": "give --load-path on the command line",
    "reward_model.checkpoint_min reward_model.checkpoint_max reward_model.checkpoint_step": (
        "checkpoints from all of the expert's training play the episodes that are ranked"
    ),
    **dict.fromkeys(
        (
            "reward_model.obs_norm reward_model.obs_norm_clamp_min reward_model.obs_norm_clamp_max",
            "reward_model.intrinsic_reward_type reward_model.intrinsic_reward_weight",
            "reward_model.intrinsic_reward_rescale reward_model.extrinsic_reward_norm",
            "reward_model.extrinsic_reward_norm_max reward_model.reverse_scale",
            "reward_model.only_use_last_five_frames_for_icm_rnd reward_model.nstep reward_model.log_every_n_train",
            "reward_model.min_snippet_length reward_model.max_snippet_length reward_model.num_trajs",
            "reward_model.num_snippets reward_model.input_type reward_model.bc_iterations",
            "reward_model.num_trajs_per_bin reward_model.trajectories_per_bin reward_model.sample_size",
        ),
        "this reward model has no such setting",
    ),
    "policy.collect.collector.get_train_sample": "the collector 'sample' returns training rows in any case",
    "policy.eval.env_num": "use env.evaluator_env_num",
    "policy.learn.reparameterization": "the policy's own nature: discrete actions need none, continuous ones have it",
    "policy.learn.init_w": "layers begin with torch's own weights, or with those of learn.ppo_param_init",
    "policy.learn.value_network": "targets take the critics' values: there is no network for them alone",
    "policy.learn.learning_rate_q": "the critic's rate is learn.learning_rate_critic here",
    "policy.learn.learning_rate_policy": "the actor's rate is learn.learning_rate_actor here",
    "policy.learn.learning_rate_value": "there is no network for values alone: see learn.learning_rate_q",
    "policy.learn.learning_rate_alpha": "of policies with a temperature: 'sac', 'discrete_sac'",
    "policy.learn.epoch_per_collect": "of policies that learn from a batch several times: 'ppo', 'ppg'",
    "policy.learn.policy_weight": "the actor's loss has weight 1: learn.value_weight is the critic's beside it",
    "policy.learn.iqn": "the policy is chosen by its name: 'iqn', 'rainbow'",
    "policy.learn.nstep_return policy.nstep_return": "set collect.gae_lambda: 1 sums all rewards, 0 takes one step",
    "policy.learn.train_iterations policy.learn.learner.train_iterations": "give --train-iter on the command line",
    "policy.learn.learner.dataloader*": "batches come from the replay buffer or the prefetcher",
    "policy.learn.learner.log_policy": "the model is described at the start of every run",
    "policy.learn.learner.is_multitask_pipeline": "every pipeline uses the same learner",
    "policy.learn.learner.only_monitor_rank0": "only the first learner writes metrics",
    "policy.learn.learner.send_policy_freq policy.collect.collector.update_policy_second": (
        "the pipeline decides when weights are sent"
    ),
    "policy.collect.collector.collector_num": "the pipeline decides how many collectors there are",
    "policy.collect.collector.transform_obs": "observations stay arrays until the policy takes them",
    "policy.collect.collector.deepcopy_obs": "a collector always returns memory of its own",
    "policy.collect.collector.collect_print_freq": "the run prints one line every few seconds",
    "policy.eval.evaluator.render": "videos are made of checkpoints after the run",
    "policy.eval.evaluator.figure_path": "curves are drawn from metrics.jsonl after the run",
    "policy.other.eps": "of policies that act at random with that probability: this one draws its actions",
    "policy.other.eps.collect": "collect.n_sample says how much is collected, random_collect_size how much before that",
    "policy.reward_batch_norm": "rewards are scaled by wrappers of the env, or learn.value_norm",
    "policy.other.replay_buffer.alpha policy.other.replay_buffer.beta policy.other.replay_buffer.anneal_step": (
        "of buffers that sample by priority: replay_buffer.type='advanced'"
    ),
    "policy.other.replay_buffer.max_use policy.other.replay_buffer.max_reuse "
    "policy.other.replay_buffer.max_staleness": "of buffers that count it: replay_buffer.type='advanced'",
    "policy.other.replay_buffer.thruput_controller*": "of buffers that limit rates: replay_buffer.type='advanced'",
    "policy.other.replay_buffer.min_sample_ratio": "use thruput_controller.sample_min_limit_ratio of buffer 'advanced'",
    "policy.other.replay_buffer.sliced": "rows of a trajectory stay together where the policy learns from them",
    "policy.other.replay_buffer.multi_buffer policy.other.replay_buffer.policy* policy.other.replay_buffer.value*": (
        "one buffer holds the rows, used as often as the policy says"
    ),
    "policy.other.replay_buffer.replay_buffer_start_size": "use policy.random_collect_size",
    "policy.other.replay_buffer.deepcopy": "a buffer copies on push and on sample",
    "policy.other.replay_buffer.enable_track_used_data": "used files are deleted by the process that wrote them",
    "policy.other.replay_buffer.periodic_thruput_seconds": "throughput is computed on push and sample",
    "policy.other.replay_buffer.monitor*": "monitors need no settings",
}
LEGACY_KEYS = {path: reason for paths, reason in _REASONS.items() for path in paths.split()}

# DI-engine's path -> ours: a value there is read as if it were given here, where a class has our key alone.
RENAMED_KEYS: dict[str, str] = {
    "policy.priority_IS": "policy.priority_IS_weight",
    "policy.kappa": "policy.learn.kappa",
    "policy.learn.double_q": "policy.double",
    "policy.learn.nstep": "policy.nstep",
    "policy.learn.discount_factor": "policy.discount_factor",
    "policy.collect.discount_factor": "policy.discount_factor",
    "policy.learn.target_update_theta": "policy.learn.target_theta",
    "policy.learn.grad_norm": "policy.learn.grad_clip_norm",
    "policy.learn.clip_value": "policy.learn.grad_clip_norm",
    "policy.learn.optim": "policy.learn.optimizer.type",
    "policy.learn.betas": "policy.learn.optimizer.betas",
    "policy.learn.eps": "policy.learn.optimizer.eps",
    "policy.learn.weight_decay": "policy.learn.optimizer.weight_decay",
    "policy.learn.epochs_aux": "policy.learn.aux_train_epoch",
    "policy.learn.beta_weight": "policy.learn.aux_bc_weight",
    "policy.learn.per_train_iter_k": "policy.learn.pretrain_updates",
    "policy.learn.margin_function": "policy.learn.expert_margin",
    "policy.learn.lambda3": "policy.learn.optimizer.weight_decay",
    "policy.learn.td_lambda": "policy.collect.gae_lambda",
    "policy.learn.nopt_min_weight": "policy.learn.nopt_weight",
    "policy.collect.pho": "policy.learn.expert_share",
}

# Our keys that name a file of demonstrations, of those classes that learn from one.
DATA_PATHS = ("reward_model.data_path", "policy.collect.data_path")

# DI-engine's path -> ours, of what concerns an expert, where the config has a class with one of `DATA_PATHS`.
_OF_EXPERT = {
    "policy.collect.model_path": "expert.checkpoint",
    "reward_model.expert_model_path": "expert.checkpoint",
    "policy.collect.expert_data_path": "policy.collect.data_path",
    "policy.learn.data_path": "policy.collect.data_path",
    "reward_model.expert_data_path": "reward_model.data_path",
    "reward_model.offline_data_path": "reward_model.data_path",
}

# DI-engine's path -> the argument of the model that it stands for; a model takes what its constructor takes.
MODEL_KEYS: dict[str, str] = {
    "policy.noisy_net": "policy.model.noise",
    "policy.learn.noisy_net": "policy.model.noise",
    "policy.model.noisy_net": "policy.model.noise",
    "policy.model.ensemble_num": "policy.model.num_critics",
    "policy.model_type": "policy.model.type",
    "policy.learn.model_type": "policy.model.type",
    "policy.model.model_type": "policy.model.type",
}

# Of a decision transformer in DI-engine's form: path -> ours; None: what another key of the file has too.
_OF_DT: dict[str, str | None] = {
    "policy.batch_size": "policy.learn.batch_size",
    "policy.learning_rate": "policy.learn.learning_rate",
    "policy.wt_decay": "policy.learn.optimizer.weight_decay",
    "policy.clip_grad_norm_p": "policy.learn.grad_clip_norm",
    "policy.model.state_dim": "policy.model.obs_shape",
    "policy.model.act_dim": "policy.model.action_shape",
    "policy.model.context_len": "policy.context_len",
    "policy.stop_value": "env.stop_value",
    "policy.evaluator_env_num": "env.evaluator_env_num",
    "policy.env_name": "env.env_id",
    "policy.weight_decay": None,
    "dataset": None,
}

# Sections of DI-engine that are whole methods of learning: the message, in place of "unknown key".
NOT_HERE: dict[str, str] = {
    "bco": "DI-engine's imitation learning is not here: choose a policy that learns from rewards",
    "dataset": "policy.collect.data_path names the data; context_len, rtg_scale and rtg_target are keys of policy",
}

# Path pattern -> where that is set, in place of "unknown key".
ELSEWHERE: dict[str, str] = {
    "system": (
        "system. keys are of modes ray and seed, as in `ding -m ray ... --workers 4` for 4 collecting workers, or "
        "`ding -m ray ... system.ray.grad.workers=2`; for mode parallel put system_config = dict(num_collectors=4) "
        "into the config file"
    ),
    **dict.fromkeys(
        ("system.ray.num_workers", "system.ray.workers"),
        "give --workers 4, or system.ray.collect.workers=4, for 4 collecting workers; system.ray.grad.workers=2 is for "
        "workers that compute gradients",
    ),
    "policy.her": "hindsight replay is a buffer: policy.other.replay_buffer.type=her, with its keys k and strategy",
    "*total_timesteps": "how long a run is stands on the command line, --env-step 10000; in Python: env_step=10000",
}


def reason_of(reasons: Mapping[str, str], path: str) -> str | None:
    """Return what a table of path patterns has for a path, or None."""
    return next((reason for pattern, reason in reasons.items() if fnmatch.fnmatchcase(path, pattern)), None)


# ---- keys without effect
#
# A class declares such keys beside its `config`, as `without_effect = {"key": "what does it"}`; configs written for
# DI-engine then run as they are. Parts that are no class of a config's schema have theirs here.

_logger = logging.getLogger(__name__)
_NOT_SET = object()

# Of the commander of a parallel run, which reads a section that takes any key.
COMMANDER: Mapping[str, str] = {
    "policy.other.commander.eval_interval": "policy.eval.evaluator.eval_freq says how often, in learner iterations",
    "policy.other.commander.eval_freq": "it is a copy of policy.eval.evaluator.eval_freq",
    "policy.other.commander.n_episode": "it is a copy of env.n_evaluator_episode",
    "policy.other.commander.stop_value": "it is a copy of env.stop_value",
    "policy.other.commander.max_env_step": "give --env-step on the command line",
}
# Of the replay buffer 'naive'.
NAIVE_BUFFER: Mapping[str, str] = {
    "policy.priority": "buffer 'naive' samples evenly: set policy.other.replay_buffer.type='advanced'"
}
# Of `system_config`.
SYSTEM: Mapping[str, str] = {
    "learner_gpu_num": "policy.cuda says whether a GPU is used",
    "coordinator.collector_task_timeout": "coordinator.lease_ttl_s says when a silent worker's task is given away",
    "coordinator.learner_task_timeout": "coordinator.lease_ttl_s says when a silent worker's task is given away",
    "coordinator.operator_server": "workers dial in; `ding -m dist` starts them",
}
# Of the section of a parallel collector in create_config.
PARALLEL_COLLECTOR: Mapping[str, str] = {
    "compressor": "rows travel as they are",
    "update_policy_second": "weights are taken over whenever newer ones are known",
    "print_freq": "a collector writes a line every five seconds",
}


def log_without_effect(
    user: Config, defaults: Config, reasons: Mapping[str, str], *, source: str, section: str = ""
) -> None:
    """Log in one INFO message which keys of `reasons` a user set to something else than the default, if any."""
    found = {
        join(section, path): reason
        for path, reason in reasons.items()
        if (value := get_path(user, path, _NOT_SET)) is not _NOT_SET and value != get_path(defaults, path)
    }
    if found:
        _logger.info("%s", listed(found, f"{os.path.basename(source)}: these keys have no effect"))


def listed(reasons: Mapping[str, str], title: str) -> str:
    """Return one message about some keys: a line for each, with its path and the reason."""
    width = max(map(len, reasons))
    return title + "".join(f"\n  {path:<{width}}   {reason}" for path, reason in reasons.items())


SWITCH = "defaults"  # its key in create_config
CHOICES = ("ding_like", "di_engine")
IGNORE_MISSING = "ignore_missing"  # key of create_config: train the policy that a file of a missing method names


class Default(NamedTuple):
    """One default of DI-engine."""

    value: Any  # of any plain type
    source: str = "default_config()"
    # Other keys of the same meaning: where a config sets one, this default does not hold.
    unless: tuple[str, ...] = ()


Defaults = Mapping[str, Default]

_ADVANCED: Defaults = {
    "policy.other.replay_buffer.type": Default("advanced", "the buffer that it makes where create_config names none")
}
_LARGE: Defaults = {
    "policy.learn.update_per_collect": Default(1),
    "policy.other.replay_buffer.replay_buffer_size": Default(1_000_000),
}
_SAC: Defaults = {**_ADVANCED, **_LARGE, "policy.collect.n_sample": Default(1)}
_DDPG: Defaults = {
    **_ADVANCED,
    "policy.random_collect_size": Default(25_000),
    "policy.learn.update_per_collect": Default(1),
}
_TD3: Defaults = {
    **_DDPG,
    "policy.learn.target_update_freq": Default(
        1, "a TD3Policy that was run: its targets move in every update, its actor in every second one"
    ),
}
_PPO_OFF: Defaults = {
    "policy.learn.learning_rate": Default(1e-3),
    "policy.learn.entropy_weight": Default(0.01),
    "policy.learn.adv_norm": Default(False),
}
_PPO_OF_TEAMS: Defaults = {
    "policy.learn.batch_size": Default(64),
    "policy.learn.learning_rate": Default(3e-4),
    "policy.learn.entropy_weight": Default(0.0),
    "policy.learn.grad_clip_value": Default(0.5, unless=("policy.learn.grad_norm", "policy.learn.grad_clip_norm")),
}
_MIXED: Defaults = {
    **_ADVANCED,
    "policy.learn.update_per_collect": Default(20),
    "policy.learn.batch_size": Default(32),
    "policy.learn.grad_clip_norm": Default(100.0, unless=("policy.learn.clip_value", "policy.learn.grad_norm")),
    "policy.learn.target_theta": Default(
        0.008, unless=("policy.learn.target_update_theta", "policy.learn.target_update_freq")
    ),
    "policy.other.eps.start": Default(1.0),
    "policy.other.eps.end": Default(0.05),
    "policy.other.eps.decay": Default(50_000),
    "policy.other.replay_buffer.replay_buffer_size": Default(5_000),
}
_QMIX: Defaults = {**_MIXED, "policy.double": Default(False, unless=("policy.learn.double_q",))}
_PRIORITIES: Defaults = {"policy.priority": Default(True), "policy.priority_IS_weight": Default(True)}
_DISCOUNT = ("policy.learn.discount_factor",)

# Type of a policy -> path in main_config -> its default.
POLICY_DEFAULTS: Mapping[str, Defaults] = {
    **dict.fromkeys(("dqn", "sql", "c51", "qrdqn", "iqn", "fqf"), _ADVANCED),
    "mdqn": {**_ADVANCED, "policy.collect.n_sample": Default(4)},
    "dqfd": {**_ADVANCED, **_PRIORITIES, "policy.discount_factor": Default(0.99, unless=_DISCOUNT)},
    "d4pg": {**_DDPG, **_LARGE, **_PRIORITIES, "policy.nstep": Default(3, unless=("policy.learn.nstep",))},
    "sqn": {
        **_ADVANCED,
        "policy.learn.update_per_collect": Default(16),
        "policy.learn.batch_size": Default(64),
        "policy.learn.learning_rate_q": Default(1e-3),
        "policy.learn.learning_rate_alpha": Default(1e-3),
        "policy.learn.target_entropy": Default(0.2),
    },
    "bc": {"policy.learn.batch_size": Default(32), "policy.learn.show_accuracy": Default(False)},
    "bcq": {
        **_ADVANCED,
        **_LARGE,
        "policy.learn.batch_size": Default(100),
        "policy.learn.learning_rate_q": Default(3e-4),
        "policy.learn.learning_rate_policy": Default(3e-4),
        "policy.learn.learning_rate_vae": Default(3e-4),
    },
    "cql": _SAC,
    "edac": {**_SAC, "policy.learn.eta": Default(0.1), "policy.learn.with_q_entropy": Default(False)},
    "discrete_cql": {**_ADVANCED, "policy.learn.update_per_collect": Default(1)},
    "td3_bc": {
        **_TD3,
        **_LARGE,
        "policy.learn.learning_rate_actor": Default(1e-3),
        "policy.learn.learning_rate_critic": Default(1e-3),
        "policy.eval.evaluator.eval_freq": Default(5_000),
    },
    "dt": {"policy.max_eval_ep_len": Default(1_000)},
    "rainbow": {
        **_ADVANCED,
        "policy.discount_factor": Default(0.99, unless=_DISCOUNT),
        "policy.learn.update_per_collect": Default(1),
        "policy.learn.batch_size": Default(32),
        "policy.other.replay_buffer.replay_buffer_size": Default(100_000),
    },
    "r2d2": {**_ADVANCED, "policy.collect.n_sample": Default(32)},
    "r2d3": {**_ADVANCED, "policy.burnin_step": Default(2)},
    **dict.fromkeys(("discrete_sac", "sac", "sqil_sac", "masac", "masac_discrete"), _SAC),
    **dict.fromkeys(("ddpg", "maddpg"), _DDPG),
    **dict.fromkeys(("td3", "matd3"), _TD3),
    "pdqn": {
        **_ADVANCED,
        "policy.discount_factor": Default(0.97, unless=_DISCOUNT),
        "policy.learn.update_per_collect": Default(3),
        "policy.learn.batch_size": Default(64),
        "policy.other.eps.start": Default(0.95),
        "policy.other.eps.end": Default(0.1),
        "policy.other.replay_buffer.replay_buffer_size": Default(10_000),
    },
    "ppo": {"policy.recompute_adv": Default(True), "policy.learn.value_norm": Default(True)},
    "mappo": {"policy.recompute_adv": Default(True), **_PPO_OF_TEAMS},
    "happo": {**_PPO_OF_TEAMS, "policy.learn.epoch_per_collect": Default(10)},
    "coma": {"policy.learn.value_weight": Default(1.0)},
    "ppo_offpolicy": {
        **_ADVANCED,
        **_PPO_OFF,
        "policy.learn.value_norm": Default(True),
        "policy.other.replay_buffer.replay_buffer_size": Default(10_000),
    },
    "a2c": {
        "policy.collect.discount_factor": Default(
            0.9, unless=("policy.discount_factor", "policy.learn.discount_factor")
        ),
        "policy.learn.batch_size": Default(64),
        "policy.learn.adam_eps": Default(1e-8, unless=("policy.learn.eps", "policy.learn.optimizer.eps")),
    },
    "pg": {
        "policy.learn.grad_clip_value": Default(5.0, unless=("policy.learn.grad_norm", "policy.learn.grad_clip_norm"))
    },
    "ppg": {
        **_PPO_OFF,
        "policy.learn.aux_freq": Default(8),
        "policy.learn.grad_clip_value": Default(10.0, unless=("policy.learn.grad_norm", "policy.learn.grad_clip_norm")),
    },
    "ppg_offpolicy": {**_ADVANCED, **_PPO_OFF},
    "impala": {
        **_ADVANCED,
        "policy.learn.grad_clip_value": Default(
            None,
            "default_config(), whose learn.grad_clip_type is None",
            unless=("policy.learn.grad_clip_type", "policy.learn.clip_value", "policy.learn.grad_clip_norm"),
        ),
        "policy.other.replay_buffer.max_use": Default(16),
    },
    "qmix": _QMIX,
    "wqmix": {**_QMIX, "policy.learn.alpha": Default(0.5)},
    "qtran": {
        **_MIXED,
        "policy.learn.grad_clip_norm": Default(1.5, unless=("policy.learn.clip_value", "policy.learn.grad_norm")),
        "policy.learn.opt_weight": Default(0.01),
        "policy.learn.nopt_weight": Default(1e-4, unless=("policy.learn.nopt_min_weight",)),
    },
    "idqn": {
        **_QMIX,
        "policy.discount_factor": Default(0.99, unless=_DISCOUNT),
        "policy.learn.learning_rate": Default(5e-4),
        "policy.learn.optimizer.weight_decay": Default(1e-5, unless=("policy.learn.weight_decay",)),
    },
}

# Policies that read learn.discount_factor there, where a config has policy.discount_factor too.
GAMMA_IN_LEARN = (
    *("bcq", "cql", "ddpg", "d4pg", "td3", "td3_bc", "sac", "discrete_sac", "edac", "iql", "qmix"),
    *("maddpg", "matd3", "masac", "masac_discrete"),
)

# Policies that come closest -> policies of DI-engine that are not here.
_CLOSEST: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("impala", "ppo_offpolicy"): ("acer",),
    ("qmix", "ppo"): ("atoc",),
    ("dqn", "qrdqn"): ("averaged_dqn",),
    ("bc",): ("il",),
    ("dqn", "sac"): ("bdq",),
    ("qmix",): ("collaq",),
    ("sac", "td3"): ("ibc", "pd", "qgpo"),
    ("sac",): ("mbsac",),
    ("dqn",): ("dqn_stdim", "pc_bfs", "stdim"),
    ("ppo_recurrent", "sac"): ("dreamer",),
    ("r2d2", "ppo_recurrent"): ("gtrxl_discrete",),
    ("ppo", "pg"): ("ppo_pg",),
    ("ppo",): ("ppo_stdim", "ppof"),
    ("r2d2",): ("r2d2_collect_traj",),
    ("r2d2", "drqn"): ("r2d2_gtrxl",),
    ("td3",): ("td3_vae",),
}
CLOSEST_POLICIES = dict(sorted((name, closest) for closest, names in _CLOSEST.items() for name in names))

# What their files call, where it is no comment.
_ENTRY = re.compile(r"^[^#\n]*\b(serial_pipeline_\w+|collect_\w*demo_data\w*)\(", re.MULTILINE)
# What follows "serial_pipeline_" in the entry function of a method that is not here, or a word of its files' names ->
# the method. The first that fits counts.
MISSING_METHODS: Mapping[str, str] = {
    "bco": "behavioural cloning from observations (BCO)",
    "dreamer": "Dreamer, a world model",
    "dream": "a world model",
    "mbpo": "MBPO, a world model",
    "mbrl": "a world model",
    "offline": "offline learning, and its policy learns online: td3_bc, iql, cql, bcq and others learn from a data set",
    "plr": "prioritised level replay (PLR)",
    "td3_vae": "TD3 on actions of an auto-encoder",
}


def switch_fault(chosen: object) -> str | None:
    """Return what is wrong with the value of the switch, or None."""
    hint = did_you_mean(str(chosen), CHOICES, cutoff=0.4)
    return None if chosen in CHOICES else f"is {chosen!r}, expected one of {', '.join(map(repr, CHOICES))}{hint}"


def is_switched(create: Config) -> bool:
    """Return whether a create_config asks for the defaults of DI-engine."""
    return create.get(SWITCH) == CHOICES[1]


def is_di_engine(create: Config) -> bool:
    """Return whether a config is DI-engine's: the switch is set, or its import_names are of `ding` or `dizoo`."""
    return is_switched(create) or any(_names_its_modules(section) for _, section in items(create))


def _names_its_modules(section: Any) -> bool:  # Any: what a user wrote
    names = section.get("import_names") if isinstance(section, Mapping) else None
    names = [names] if isinstance(names, str) else names
    return isinstance(names, (list, tuple)) and any(str(name).split(".")[0] in ("ding", "dizoo") for name in names)


def missing(part: str, name: object) -> str | None:
    """Return what to use in place of a class that only DI-engine has, or None for an unknown name."""
    stem = name.removesuffix("_command") if isinstance(name, str) else ""
    if part != "policy" or stem not in CLOSEST_POLICIES:
        return None
    return f"DI-engine's policy '{stem}' is not here; closest are {' and '.join(map(repr, CLOSEST_POLICIES[stem]))}"


def missing_method(main: Config, create: Config, source: str, knows: Callable[[str], bool]) -> str | None:
    """Return which method of DI-engine a config is of and how that shows, if the method is not here; else None.

    The function that the file `source` calls counts first, then keys of `main` that no class `knows`, then the file's
    name.
    """
    chosen, has_data = str(get_path(create, "policy.type")), any(map(knows, DATA_PATHS))
    not_here = {start: method for start, method in MISSING_METHODS.items() if not (start == "offline" and has_data)}
    text = Path(source).read_text(encoding="utf-8", errors="replace") if Path(source).is_file() else ""
    for name in _ENTRY.findall(text):
        for start, method in not_here.items():
            if name.startswith(f"serial_pipeline_{start}") and not chosen.startswith(start):
                return f"{method}, as it calls {name}"
        if "demo_data" in name:
            return None  # data that others learn from are collected by any policy
    if get_path(main, "policy.collect.data_path") and not has_data:
        return f"{MISSING_METHODS['offline']}, as it has policy.collect.data_path"
    words = Path(source).stem.split("_") if is_di_engine(create) else ()
    missing = (word for word in words if word in not_here and not chosen.startswith(word))
    return next((f"{not_here[word]}, as its name says" for word in missing), None)


def drop_missing(main: Tree, create: Tree) -> dict[str, str]:
    """Take the sections of methods that are not here out of both configs; return why, by their paths in `main`."""
    dropped = {name: reason for name in {**main, **create} if (reason := reason_of(NOT_HERE, name)) is not None}
    for name in dropped:
        main.pop(name, None)
        create.pop(name, None)
    return dropped


_PER_ENV = "env.evaluator_episode_num"
_TOTAL = "env.n_evaluator_episode"
_SCHEDULER = "policy.learn.lr_scheduler"
_SCHEDULE = "policy.learn.schedule"


def translate(main: Tree, defaults: Tree, knows: Callable[[str], bool]) -> None:
    """Change a main_config to our keys, in place; what has another form than DI-engine's stays as it is."""
    _name_model_keys(main, knows)
    _name_expert(main, knows)
    if knows("policy.rtg_scale"):
        _name_dt(main)
    _name_bc(main, knows)
    each = get_path(main, _PER_ENV)
    envs = get_path(main, "env.evaluator_env_num", get_path(defaults, "env.evaluator_env_num"))
    if type(each) is type(envs) is int and get_path(main, _TOTAL) is None and not knows(_PER_ENV):
        del main["env"]["evaluator_episode_num"]
        set_path(main, _TOTAL, each * envs)
    learn = get_path(main, "policy.learn")
    has_schedule = knows(f"{_SCHEDULE}.env_steps") and not knows(_SCHEDULER)
    if has_schedule and isinstance(learn, dict) and "lr_scheduler" in learn:
        _read_schedule(main, learn, defaults)


def _name_model_keys(main: Tree, knows: Callable[[str], bool]) -> None:
    """Put what DI-engine says of the model at several places where the model's arguments are.

    None and False, which change nothing, are left out; a second value that differs stays, and is an unknown key. So do
    the arguments of a model that the config names: it may have such a one itself.
    """
    has_own = get_path(main, "policy.model.type") is not None
    for path, target in MODEL_KEYS.items():
        value, given = get_path(main, path, _NOT_SET), get_path(main, target, _NOT_SET)
        is_own = knows(path) or (has_own and path.startswith("policy.model."))
        if value is _NOT_SET or is_own or (value and given not in (_NOT_SET, value)):
            continue
        section, _, key = path.rpartition(".")
        del get_path(main, section)[key]
        if value:
            set_path(main, target, value)


def _name_expert(main: Tree, knows: Callable[[str], bool]) -> None:
    """Put what DI-engine says of an expert and of a reward model's network where it stands here.

    Placeholders of paths are left out: the stages of the run make these files.
    """
    for place in ("policy.collect", "reward_model"):
        given: Any = get_path(main, place)
        for key, value in [*items(given)] if isinstance(given, dict) else ():
            if isinstance(value, str) and "placeholder" in value:
                del given[key]
    has_expert = any(map(knows, DATA_PATHS))
    for path, target in _OF_EXPERT.items():
        place, _, key = path.rpartition(".")
        section: Any = get_path(main, place)
        if not (isinstance(section, dict) and key in section and has_expert) or knows(path) or not knows(target):
            continue
        value = section.pop(key)
        if value and get_path(main, target) is None:
            set_path(main, target, value)
    model = main.get("reward_model")
    is_ours = knows("reward_model.hidden_size_list") and not knows("reward_model.hidden_size")
    if isinstance(model, dict) and is_ours and isinstance(model.get("hidden_size"), (int, list, tuple)):
        size = model.pop("hidden_size")
        model.setdefault("hidden_size_list", [size] if isinstance(size, int) else list(size))


def _name_bc(main: Tree, knows: Callable[[str], bool]) -> None:
    """Put the hidden layers of DI-engine's actor of continuous actions where those of model 'bc' stand."""
    model = get_path(main, "policy.model")
    is_bc = knows("policy.learn.ce_label_smooth") and isinstance(model, dict) and "type" not in model
    if not is_bc or type(size := model.get("actor_head_hidden_size")) is not int:
        return
    del model["actor_head_hidden_size"]
    layers = model.pop("actor_head_layer_num", 1)
    if model.get("action_space") in ("regression", "reparameterization"):  # policy.loss_type decides
        del model["action_space"]
    model.setdefault("encoder_hidden_size_list", [size] * (1 + layers))
    model.setdefault("head_layer_num", 0)


def _name_dt(main: Tree) -> None:
    """Put what DI-engine says of a decision transformer where it stands here; a value that is given twice counts once.

    A second value that differs stays, and is an unknown key; of the env, that of the section env counts.
    """
    for path, target in _OF_DT.items():
        value = get_path(main, path, _NOT_SET)
        given = _NOT_SET if target is None else get_path(main, target, _NOT_SET)
        is_of_env = target is not None and target.startswith("env.")
        if value is _NOT_SET or (given not in (_NOT_SET, value) and not is_of_env):
            continue
        section, _, key = path.rpartition(".")
        del (get_path(main, section) if section else main)[key]
        if target is not None and value is not None and given is _NOT_SET:
            set_path(main, target, value)


def read_ngu(main: Tree, create: Tree, *, quiet: bool) -> None:
    """Change NGU's two reward models of a config in DI-engine's form to the one here, in place."""
    sections: list[Any] = [main.get(name) for name in _NGU if isinstance(main.get(name), Mapping)]
    if not sections or "reward_model" in main:
        return
    for name in _NGU:
        main.pop(name, None), create.pop(name, None)
    given, other = ({key: value for key, value in items(each) if key != "type"} for each in (sections[0], sections[-1]))
    main["reward_model"], create["reward_model"] = given, {"type": "ngu"}
    left_out = [f"{key}={value!r}" for key, value in other.items() if key not in given or given[key] != value]
    if not quiet:
        more = f"; of {_NGU[1]} are left out: {', '.join(left_out)}" if left_out else ""
        _logger.info("read as reward_model.type='ngu', which has one network size and one rate%s", more)


_NGU = ("rnd_reward_model", "episodic_reward_model")


def _read_schedule(main: Tree, learn: Tree, defaults: Tree) -> None:
    """Change `learn.lr_scheduler` to `learn.schedule`.

    There the learning rate goes in a straight line to `min_lr_lambda` times its first value, in `epoch_num` train
    calls, each on what was collected for it; ours counts the env steps. What has another form stays where it is, and
    is an unknown key.
    """
    given = learn["lr_scheduler"]
    if given is None:
        del learn["lr_scheduler"]
    elif isinstance(given, Mapping) and set(given) == {"epoch_num", "min_lr_lambda"}:
        paths = ("policy.learn.learning_rate", "policy.collect.n_sample")
        rate, n_sample = (get_path(main, path, get_path(defaults, path)) for path in paths)
        if all(isinstance(number, (int, float)) for number in (*given.values(), rate, n_sample)):
            del learn["lr_scheduler"]
            set_path(main, f"{_SCHEDULE}.env_steps", int(given["epoch_num"] * n_sample))
            set_path(main, f"{_SCHEDULE}.lr_end", given["min_lr_lambda"] * rate)


# ---- hindsight replay


_SECTION = "policy.other.her"
_BUFFER = "policy.other.replay_buffer"
_KEYS = ("her_strategy", "her_replay_k", "episode_size", "sample_per_episode")
# Buffers that a config of DI-engine's names beside `her`, and ours.
_BUFFERS = ("episode", "naive", "deque", "her")


def read_her(main: Tree, create: Tree, *, quiet: bool) -> Iterator[Fault]:
    """Change a config in DI-engine's form to ours, in place, and log the changes in one INFO line unless it is `quiet`.

    | DI-engine                                           | here                                              |
    |-----------------------------------------------------|---------------------------------------------------|
    | `create_config.replay_buffer.type='episode'`        | 'her', with `size_unit='episodes'`                |
    | `her.her_strategy`, `her.her_replay_k` (1)          | `replay_buffer.strategy`, `replay_buffer.k`       |
    | `her.episode_size * her.sample_per_episode`         | `policy.learn.batch_size`                         |

    Yields what is wrong with the section.
    """
    her, kind = get_path(main, _SECTION), _type_of("replay_buffer", _BUFFER, main, create)
    plays_episodes = _type_of("collector", "policy.collect.collector", main, create) == "episode"
    if her is None:
        if kind == "episode" and plays_episodes:  # DI-engine's policies cut the episodes of a sample themselves
            set_path(main, "policy.collect.collector.get_train_sample", True)
        return
    faults = list(_faults(her, kind))
    if faults:
        yield from faults
        return
    main["policy"]["other"].pop("her")
    create["replay_buffer"] = {"type": "her"}
    get_path(main, _BUFFER, {}).pop("type", None)
    if plays_episodes:
        set_path(main, "policy.collect.collector.get_train_sample", True)
    settings = {f"{_BUFFER}.k": her.get("her_replay_k", 1)}
    if "her_strategy" in her:
        settings[f"{_BUFFER}.strategy"] = her["her_strategy"]
    if kind == "episode":
        settings[f"{_BUFFER}.size_unit"] = "episodes"
    episodes, rows = her.get("episode_size"), her.get("sample_per_episode")
    if episodes is not None and rows is not None:
        settings["policy.learn.batch_size"] = episodes * rows
    for path, value in settings.items():
        set_path(main, path, value)
    if not quiet:
        listed = ", ".join(f"{path}={value!r}" for path, value in settings.items())
        _logger.info("read as create_config.replay_buffer.type='her' (docs/algorithms/her.md): %s", listed)


def _faults(her: Any, kind: str | None) -> Iterator[Fault]:  # Any: what a user wrote
    if not isinstance(her, Mapping):
        yield Fault(_SECTION, f"expected a section, dict(her_strategy=..., ...), got {her!r}")
        return
    for key in her:
        if key not in _KEYS:
            yield Fault(f"{_SECTION}.{key}", f"unknown key; {suggestion(str(key), dict.fromkeys(_KEYS), {})}")
    for key in ("episode_size", "sample_per_episode"):
        value = her.get(key)
        if value is not None and (not isinstance(value, int) or value < 1):
            yield Fault(f"{_SECTION}.{key}", f"is {value!r}, expected a whole number from 1, or None")
    if kind not in (None, *_BUFFERS):
        yield Fault(_SECTION, f"goes with a buffer of type 'episode' or 'her', not {kind!r}: leave the section out")


def _type_of(part: str, path: str, main: Tree, create: Tree) -> Any:
    """Return the type that a config names for a part; None where it names none."""
    section = create.get(part)
    named = section.get("type") if isinstance(section, Mapping) else None
    return get_path(main, f"{path}.type") if named is None else named
