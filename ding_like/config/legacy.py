"""Keys of DI-engine and other libraries that have no use, or another place, in ding_like.

A row holds only for classes that do not have the key: where a default has it, it is read like any other.
"""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Mapping

from ding_like.config.tree import get_path, join
from ding_like.types import Config

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
    "policy.multi_agent": "the policy is the one of a single agent",
    "policy.agent_num": "the env says how many agents there are",
    "policy.deterministic_eval": "an evaluation takes the likeliest actions",
    "policy.transition_with_policy_data policy.collect.collector_logit": "rows hold what the policy declares",
    "policy.collect.env_num policy.collect.collector_env_num": "use env.collector_env_num",
    "policy.collect.noise_sigma": "the policy draws its actions: it explores without noise",
    "policy.collect.model_path policy.collect.state_dict_path": (
        "of data sets and experts: give --load-path to start from a checkpoint"
    ),
    "policy.collect.expert_data_path policy.collect.data_path policy.collect.data_type "
    "policy.collect.save_path policy.collect.collect_count policy.expert_random_collect_size": (
        "of data sets and experts, which are not here"
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
    "policy.other.replay_buffer.max_use policy.other.replay_buffer.max_staleness": (
        "of buffers that count it: replay_buffer.type='advanced'"
    ),
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
}

# Sections of DI-engine that are whole methods of learning: the message, in place of "unknown key".
NOT_HERE: dict[str, str] = {
    "*reward_model": (
        "DI-engine's reward models (GAIL, RND, ICM, TREX, guided cost, ...) are not here: leave the section out to "
        "learn from the rewards of the env"
    ),
    "bco": "DI-engine's imitation learning is not here: choose a policy that learns from rewards",
    "dataset": "DI-engine's offline learning is not here: choose a policy that learns in an env",
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

# Our paths -> names of the same setting in Stable-Baselines3, RLlib or CleanRL. A message names those of the paths that
# a run's classes have. A path without a section is a model's.
_NAMES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("policy.learn.learning_rate", "policy.learn.learning_rate_actor", "policy.learn.learning_rate_critic"): ("lr",),
    ("policy.discount_factor",): ("gamma",),
    ("policy.other.replay_buffer.replay_buffer_size",): ("buffer_size",),
    ("policy.nstep",): ("n_step",),
    ("policy.nstep", "policy.collect.n_sample"): ("n_steps",),
    ("policy.collect.n_sample",): ("num_steps",),
    ("policy.learn.batch_size",): ("train_batch_size",),
    ("policy.random_collect_size",): ("learning_starts",),
    ("policy.learn.update_per_collect",): ("gradient_steps",),
    ("policy.other.eps",): ("epsilon", "exploration", "exploration_config"),
    ("policy.other.eps.decay",): ("exploration_fraction",),
    ("policy.other.eps.start",): ("exploration_initial_eps",),
    ("policy.other.eps.end",): ("exploration_final_eps",),
    ("policy.learn.target_theta",): ("tau", "polyak"),
    ("policy.learn.target_update_freq",): ("target_update_interval", "target_network_frequency"),
    ("policy.learn.grad_clip_norm",): ("max_grad_norm",),
    ("policy.learn.entropy_weight", "policy.learn.alpha"): ("ent_coef",),
    ("policy.learn.value_weight",): ("vf_coef",),
    ("policy.learn.clip_ratio",): ("clip_range", "clip_coef"),
    ("policy.learn.epoch_per_collect",): ("n_epochs", "update_epochs"),
    ("policy.cuda",): ("device",),
    ("env.collector_env_num",): ("num_envs", "n_envs"),
    ("policy.model.encoder_hidden_size_list", "policy.model"): ("policy_kwargs",),
    ("encoder_hidden_size_list", "policy.model"): ("net_arch", "hidden_sizes", "fcnet_hiddens"),
}
OTHER_NAMES = {name: paths for paths, names in _NAMES.items() for name in names}


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


def of_buffer(cfg: Config) -> Mapping[str, str]:
    """Return what the replay buffer of a config makes of no effect."""
    if get_path(cfg, "policy.other.replay_buffer.type") != "naive":
        return {}
    return {"policy.priority": "buffer 'naive' samples evenly: set policy.other.replay_buffer.type='advanced'"}


def log_without_effect(
    user: Config,
    defaults: Config,
    reasons: Mapping[str, str],
    *,
    source: str,
    section: str = "",
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
