"""Config files of DI-engine: some as its users have them in `di_engine/`, and others that are changes of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ding_like.config import read_config, to_plain
from ding_like.config.read import parse_value
from ding_like.config.tree import Tree, get_path, set_path

FOLDER = Path(__file__).parent / "di_engine"
FILES = sorted(path.name.removesuffix("_config.py") for path in FOLDER.glob("*_config.py"))

# Name -> (file or variant, overrides; those of create_config begin with "create."). GONE: the variant has no such key;
# TANH: torch's layer, as a call in the file.
VARIANTS: dict[str, tuple[str, str]] = {
    "cartpole_ppo": (
        "cartpole_dqn",
        "env.replay_path=GONE policy.load_path=GONE policy.model.dueling=GONE policy.nstep=GONE "
        "policy.discount_factor=GONE policy.other=GONE policy.action_space=discrete "
        "policy.model.action_space=discrete policy.model.encoder_hidden_size_list=[64,64,128] "
        "policy.model.critic_head_hidden_size=128 policy.model.actor_head_hidden_size=128 "
        "policy.learn.epoch_per_collect=2 policy.learn.value_weight=0.5 policy.learn.entropy_weight=0.01 "
        "policy.learn.clip_ratio=0.2 policy.learn.learner.hook.save_ckpt_after_iter=100 policy.collect.n_sample=256 "
        "policy.collect.unroll_len=1 policy.collect.discount_factor=0.9 policy.collect.gae_lambda=0.95 "
        "policy.eval.evaluator.eval_freq=100 create.replay_buffer=GONE create.env_manager.type=base "
        "create.policy.type=ppo",
    ),
    "halfcheetah_sac": (
        "pendulum_td3",
        "env.act_scale=GONE policy.priority=GONE policy.learn.learning_rate_actor=GONE "
        "policy.learn.learning_rate_critic=GONE policy.learn.actor_update_freq=GONE policy.learn.noise=GONE "
        "policy.learn.noise_sigma=GONE policy.learn.noise_range=GONE policy.collect.noise_sigma=GONE "
        "policy.collect.collector=GONE env.collector_env_num=1 env.evaluator_env_num=2 env.n_evaluator_episode=2 "
        "env.env_id=HalfCheetah-v3 env.norm_obs.use_norm=False env.norm_reward.use_norm=False env.stop_value=12000 "
        "policy.cuda=True policy.random_collect_size=1000 policy.model.obs_shape=17 policy.model.action_shape=6 "
        "policy.model.action_space=reparameterization policy.model.actor_head_hidden_size=256 "
        "policy.model.critic_head_hidden_size=256 policy.learn.update_per_collect=1 policy.learn.batch_size=256 "
        "policy.learn.learning_rate_q=0.001 policy.learn.learning_rate_policy=0.001 "
        "policy.learn.learning_rate_alpha=0.0003 policy.learn.target_theta=0.005 policy.learn.discount_factor=0.99 "
        "policy.learn.alpha=0.2 policy.learn.reparameterization=True policy.learn.auto_alpha=False "
        "policy.collect.n_sample=1 policy.collect.unroll_len=1 policy.command={} policy.eval={} "
        "policy.other.replay_buffer.replay_buffer_size=1000000 create.env.type=mujoco "
        "create.env.import_names=['dizoo.mujoco.envs.mujoco_env'] create.policy.type=sac "
        "create.replay_buffer.type=naive",
    ),
    "acrobot_dqn": (
        "cartpole_dqn",
        "env.env_id=Acrobot-v1 env.replay_path=acrobot_dqn_seed0/video policy.model.obs_shape=6 "
        "policy.model.action_shape=3 policy.learn.update_per_collect=10 policy.learn.batch_size=128 "
        "policy.learn.target_update_freq=250 policy.collect.n_sample=96 create.env.type=acrobot "
        "create.env.import_names=['dizoo.classic_control.acrobot.envs.acrobot_env']",
    ),
    "bipedalwalker_td3": (
        "pendulum_td3",
        "env.env_id=BipedalWalker-v3 env.rew_clip=True env.replay_path=None policy.cuda=True policy.model.obs_shape=24 "
        "policy.model.action_shape=4 policy.learn.discount_factor=0.99 policy.learn.target_theta=0.005 "
        "policy.learn.ignore_done=False policy.learn.learner.hook.log_show_after_iter=1000 "
        "policy.collect.noise_sigma=GONE policy.collect.collector=GONE policy.collect.n_sample=64 "
        "create.env.type=bipedalwalker create.env.import_names=['dizoo.box2d.bipedalwalker.envs.bipedalwalker_env'] "
        "create.env_manager.type=subprocess",
    ),
    "cartpole_a2c": (
        "cartpole_ppo",
        "policy.action_space=GONE policy.priority=False policy.model.action_space=GONE "
        "policy.model.critic_head_hidden_size=GONE policy.model.actor_head_hidden_size=GONE "
        "policy.learn.epoch_per_collect=GONE policy.learn.clip_ratio=GONE policy.learn.batch_size=40 "
        "policy.learn.adv_norm=False policy.learn.grad_norm=0.5 policy.learn.betas=(0.9,0.999) policy.learn.eps=1e-08 "
        "policy.learn.ignore_done=False policy.collect.n_sample=80 create.policy.type=a2c",
    ),
    "cartpole_drqn": (
        "cartpole_dqn",
        "policy.priority=False policy.priority_IS_weight=False policy.model.dueling=GONE policy.burnin_step=2 "
        "policy.learn_unroll_len=40 policy.unroll_len=42 policy.learn.update_per_collect=5 "
        "policy.learn.target_update_theta=0.001 policy.learn.value_rescale=True policy.learn.ignore_done=False "
        "policy.collect.n_sample=32 policy.collect.unroll_len=42 policy.collect.traj_len_inf=True "
        "policy.collect.env_num=8 policy.eval.env_num=5 policy.other.replay_buffer.alpha=0.6 "
        "policy.other.replay_buffer.beta=0.4 create.replay_buffer=GONE create.env_manager.type=base "
        "create.policy.type=drqn",
    ),
    "cartpole_iqn": (
        "cartpole_dqn",
        "policy.model.dueling=GONE policy.model.num_quantiles=32 policy.learn.update_per_collect=3 "
        "policy.learn.target_update_freq=100 policy.learn.kappa=1.0 policy.collect.n_sample=80 "
        "policy.collect.unroll_len=1 policy.priority=True create.replay_buffer=GONE create.env_manager.type=base "
        "create.policy.type=iqn",
    ),
    "cartpole_ppg": (
        "cartpole_ppo",
        "policy.action_space=GONE policy.model.action_space=GONE policy.learn.aux_freq=8 "
        "policy.learn.aux_train_epoch=6 policy.learn.beta_weight=1 policy.collect.n_sample=128 create.policy.type=ppg",
    ),
    "cartpole_ppo_offpolicy": (
        "cartpole_ppo",
        "policy.action_space=GONE policy.model.action_space=GONE policy.learn.epoch_per_collect=GONE "
        "policy.learn.update_per_collect=6 policy.learn.nstep_return=False policy.collect.n_sample=128 "
        "policy.collect.collector.get_train_sample=True policy.other.replay_buffer.replay_buffer_size=5000 "
        "create.policy.type=ppo_offpolicy",
    ),
    "cartpole_sac": (
        "halfcheetah_sac",
        "env.env_id=GONE env.norm_obs=GONE env.norm_reward=GONE policy.cuda=False policy.multi_agent=False "
        "policy.model.action_space=GONE policy.model.obs_shape=4 policy.model.action_shape=2 "
        "policy.model.encoder_hidden_size_list=[64,64] policy.learn.batch_size=64 policy.learn.ignore_done=False "
        "policy.collect.env_num=8 policy.collect.n_sample=256 policy.eval.env_num=5 policy.eval.evaluator.eval_freq=50 "
        "create.replay_buffer=GONE create.env.type=cartpole "
        "create.env.import_names=['dizoo.classic_control.cartpole.envs.cartpole_env'] create.policy.type=discrete_sac",
    ),
    "pendulum_ddpg": (
        "pendulum_td3",
        "policy.model.twin_critic=False policy.learn.noise_sigma=GONE policy.learn.noise_range=GONE "
        "policy.learn.noise=False policy.other.replay_buffer.max_use=16 create.policy.type=ddpg",
    ),
    "pendulum_dqn": (
        "cartpole_dqn",
        "env.act_scale=True env.continuous=False policy.load_path=pendulum_dqn_seed0/ckpt/ckpt_best.pth.tar "
        "policy.model.obs_shape=3 policy.model.action_shape=11 create.env.type=pendulum "
        "create.env.import_names=['dizoo.classic_control.pendulum.envs.pendulum_env'] create.env_manager.type=base",
    ),
    "pendulum_ppo": (
        "cartpole_ppo",
        "env.act_scale=True policy.recompute_adv=True policy.action_space=continuous "
        "policy.model.critic_head_hidden_size=GONE policy.model.actor_head_hidden_size=GONE policy.model.obs_shape=3 "
        "policy.model.action_shape=1 policy.model.action_space=continuous policy.model.actor_head_layer_num=0 "
        "policy.model.critic_head_layer_num=0 policy.model.sigma_type=conditioned policy.model.bound_type=tanh "
        "policy.learn.batch_size=32 policy.learn.adv_norm=False policy.learn.value_norm=True "
        "policy.learn.ignore_done=True policy.collect.n_sample=200 create.env.type=pendulum "
        "create.env.import_names=['dizoo.classic_control.pendulum.envs.pendulum_env']",
    ),
    "cartpole_c51": (
        "cartpole_iqn",
        "policy.model.num_quantiles=GONE policy.model.v_min=-10 policy.model.v_max=10 policy.model.n_atom=51 "
        "policy.learn.kappa=GONE create.policy.type=c51",
    ),
    "cartpole_fqf": (
        "cartpole_iqn",
        "policy.model.quantile_embedding_size=64 policy.learn.learning_rate=GONE "
        "policy.learn.learning_rate_fraction=0.001 policy.learn.learning_rate_quantile=0.001 policy.learn.ent_coef=10 "
        "create.policy.type=fqf",
    ),
    "cartpole_impala": (
        "cartpole_ppo_offpolicy",
        "policy.priority=False policy.unroll_len=32 policy.random_collect_size=256 policy.learn.clip_ratio=GONE "
        "policy.learn.nstep_return=GONE policy.learn.batch_size=128 policy.learn.grad_clip_type=clip_norm "
        "policy.learn.clip_value=5 policy.learn.discount_factor=0.99 policy.learn.lambda_=0.95 "
        "policy.learn.rho_clip_ratio=1.0 policy.learn.c_clip_ratio=1.0 policy.learn.rho_pg_clip_ratio=1.0 "
        "policy.collect.discount_factor=GONE policy.collect.gae_lambda=GONE policy.collect.n_sample=32 "
        "policy.collect.unroll_len=32 policy.collect.collector.get_train_sample=GONE "
        "policy.collect.collector.collect_print_freq=1000 policy.other.replay_buffer.max_use=16 "
        "policy.other.replay_buffer.sliced=True create.policy.type=impala create.replay_buffer.type=naive",
    ),
    "cartpole_pg": (
        "cartpole_a2c",
        "policy.action_space=discrete policy.deterministic_eval=True policy.model.encoder_hidden_size_list=GONE "
        "policy.learn.value_weight=GONE policy.learn.adv_norm=GONE policy.learn.betas=GONE policy.learn.eps=GONE "
        "policy.learn.batch_size=64 policy.collect.n_sample=GONE policy.collect.gae_lambda=GONE "
        "policy.collect.n_episode=80 policy.collect.collector.get_train_sample=True create.policy.type=pg "
        "create.collector.type=episode",
    ),
    "cartpole_qrdqn": ("cartpole_iqn", "create.policy.type=qrdqn"),
    "cartpole_r2d2": ("cartpole_drqn", "create.policy.type=r2d2"),
    "cartpole_rainbow": (
        "cartpole_iqn",
        "policy.model.num_quantiles=GONE policy.model.v_min=-10 policy.model.v_max=10 policy.model.n_atom=51 "
        "policy.learn.kappa=GONE policy.learn.ignore_done=False policy.other.replay_buffer.alpha=0.6 "
        "policy.other.replay_buffer.beta=0.4 policy.other.replay_buffer.anneal_step=100000 "
        "policy.priority_IS_weight=True create.policy.type=rainbow",
    ),
    "hopper_onppo": (
        "pendulum_ppo",
        "env.act_scale=GONE env.env_id=Hopper-v3 env.norm_obs.use_norm=False env.norm_reward.use_norm=False "
        "policy.cuda=True policy.model.sigma_type=GONE policy.model.bound_type=GONE policy.model.obs_shape=11 "
        "policy.model.action_shape=3 policy.model.activation=TANH policy.learn.ignore_done=GONE "
        "policy.learn.batch_size=64 policy.learn.adv_norm=True policy.learn.lr_scheduler.epoch_num=1000 "
        "policy.learn.lr_scheduler.min_lr_lambda=0.1 policy.learn.grad_clip_type=clip_norm "
        "policy.learn.grad_clip_value=0.5 policy.collect.n_sample=512 create.env.type=mujoco "
        "create.env.import_names=['dizoo.mujoco.envs.mujoco_env'] create.env_manager.type=subprocess",
    ),
    "pong_dqn": (
        "acrobot_dqn",
        "env.env_id=PongNoFrameskip-v4 env.frame_stack=4 policy.cuda=True policy.priority=False "
        "policy.model.dueling=GONE policy.model.obs_shape=[4,84,84] policy.model.action_shape=6 "
        "policy.learn.batch_size=32 create.replay_buffer=GONE create.env.type=atari "
        "create.env.import_names=['dizoo.atari.envs.atari_env']",
    ),
}


def names() -> list[str]:
    """Return the names of all files."""
    return sorted([*FILES, *VARIANTS])


def write(name: str, folder: Path) -> Path:
    """Return the path of a file; a variant is written into the folder."""
    if name in FILES:
        return FOLDER / f"{name}_config.py"
    main, create = _configs(name)
    path = folder / f"{name}_config.py"
    path.write_text(
        "from easydict import EasyDict\nfrom torch.nn import Tanh\n\n"
        f"main_config = EasyDict({_text(main)})\ncreate_config = EasyDict({_text(create)})\n"
    )
    return path


def _configs(name: str) -> tuple[Tree, Tree]:
    if name in FILES:
        file = read_config(FOLDER / f"{name}_config.py")
        return to_plain(file.main_config), to_plain(file.create_config)
    base, overrides = VARIANTS[name]
    main, create = _configs(base)
    for path, _, value in (text.partition("=") for text in f"exp_name={name}_seed0 {overrides}".split()):
        tree = create if path.startswith("create.") else main
        section, _, key = path.removeprefix("create.").rpartition(".")
        if value == "GONE":
            get_path(tree, section).pop(key, None)
        else:
            set_path(tree, path.removeprefix("create."), parse_value(value))
    return main, create


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "dict(" + ", ".join(f"{key}={_text(each)}" for key, each in value.items()) + ")"
    return "Tanh()" if value == "TANH" else repr(value)
