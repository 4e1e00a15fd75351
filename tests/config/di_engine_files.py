"""Config files of DI-engine: some as its users have them in `di_engine/`, and others that are changes of these."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from ding_like.config import read_config

FOLDER = Path(__file__).parent / "di_engine"
FILES = sorted(path.name.removesuffix("_config.py") for path in FOLDER.glob("*_config.py"))
GONE = object()  # a key that the variant does not have
TANH = object()  # torch's layer, as a call in the file


VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "acrobot_dqn": (
        "cartpole_dqn",
        dict(
            env=dict(env_id="Acrobot-v1", replay_path="acrobot_dqn_seed0/video"),
            policy=dict(
                model=dict(obs_shape=6, action_shape=3),
                learn=dict(update_per_collect=10, batch_size=128, target_update_freq=250),
                collect=dict(n_sample=96),
            ),
        ),
        dict(env=dict(type="acrobot", import_names=["dizoo.classic_control.acrobot.envs.acrobot_env"])),
    ),
    "bipedalwalker_td3": (
        "pendulum_td3",
        dict(
            env=dict(env_id="BipedalWalker-v3", rew_clip=True, replay_path=None),
            policy=dict(
                cuda=True,
                model=dict(obs_shape=24, action_shape=4),
                learn=dict(
                    discount_factor=0.99,
                    target_theta=0.005,
                    ignore_done=False,
                    learner=dict(hook=dict(log_show_after_iter=1000)),
                ),
                collect=dict(noise_sigma=GONE, collector=GONE, n_sample=64),
            ),
        ),
        dict(
            env=dict(type="bipedalwalker", import_names=["dizoo.box2d.bipedalwalker.envs.bipedalwalker_env"]),
            env_manager=dict(type="subprocess"),
        ),
    ),
    "cartpole_a2c": (
        "cartpole_ppo",
        dict(
            policy=dict(
                action_space=GONE,
                priority=False,
                model=dict(action_space=GONE, critic_head_hidden_size=GONE, actor_head_hidden_size=GONE),
                learn=dict(
                    epoch_per_collect=GONE,
                    clip_ratio=GONE,
                    batch_size=40,
                    adv_norm=False,
                    grad_norm=0.5,
                    betas=(0.9, 0.999),
                    eps=1e-08,
                    ignore_done=False,
                ),
                collect=dict(n_sample=80),
            )
        ),
        dict(policy=dict(type="a2c")),
    ),
    "cartpole_drqn": (
        "cartpole_dqn",
        dict(
            policy=dict(
                priority=False,
                priority_IS_weight=False,
                model=dict(dueling=GONE),
                burnin_step=2,
                learn_unroll_len=40,
                unroll_len=42,
                learn=dict(update_per_collect=5, target_update_theta=0.001, value_rescale=True, ignore_done=False),
                collect=dict(n_sample=32, unroll_len=42, traj_len_inf=True, env_num=8),
                eval=dict(env_num=5),
                other=dict(replay_buffer=dict(alpha=0.6, beta=0.4)),
            )
        ),
        dict(replay_buffer=GONE, env_manager=dict(type="base"), policy=dict(type="drqn")),
    ),
    "cartpole_iqn": (
        "cartpole_dqn",
        dict(
            policy=dict(
                model=dict(dueling=GONE, num_quantiles=32),
                learn=dict(update_per_collect=3, target_update_freq=100, kappa=1.0),
                collect=dict(n_sample=80, unroll_len=1),
                priority=True,
            )
        ),
        dict(replay_buffer=GONE, env_manager=dict(type="base"), policy=dict(type="iqn")),
    ),
    "cartpole_ppg": (
        "cartpole_ppo",
        dict(
            policy=dict(
                action_space=GONE,
                model=dict(action_space=GONE),
                learn=dict(aux_freq=8, aux_train_epoch=6, beta_weight=1),
                collect=dict(n_sample=128),
            )
        ),
        dict(policy=dict(type="ppg")),
    ),
    "cartpole_ppo_offpolicy": (
        "cartpole_ppo",
        dict(
            policy=dict(
                action_space=GONE,
                model=dict(action_space=GONE),
                learn=dict(epoch_per_collect=GONE, update_per_collect=6, nstep_return=False),
                collect=dict(n_sample=128, collector=dict(get_train_sample=True)),
                other=dict(replay_buffer=dict(replay_buffer_size=5000)),
            )
        ),
        dict(policy=dict(type="ppo_offpolicy")),
    ),
    "cartpole_sac": (
        "halfcheetah_sac",
        dict(
            env=dict(env_id=GONE, norm_obs=GONE, norm_reward=GONE),
            policy=dict(
                cuda=False,
                multi_agent=False,
                model=dict(action_space=GONE, obs_shape=4, action_shape=2, encoder_hidden_size_list=[64, 64]),
                learn=dict(batch_size=64, ignore_done=False),
                collect=dict(env_num=8, n_sample=256),
                eval=dict(env_num=5, evaluator=dict(eval_freq=50)),
            ),
        ),
        dict(
            replay_buffer=GONE,
            env=dict(type="cartpole", import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"]),
            policy=dict(type="discrete_sac"),
        ),
    ),
    "pendulum_ddpg": (
        "pendulum_td3",
        dict(
            policy=dict(
                model=dict(twin_critic=False),
                learn=dict(noise_sigma=GONE, noise_range=GONE, noise=False),
                other=dict(replay_buffer=dict(max_use=16)),
            )
        ),
        dict(policy=dict(type="ddpg")),
    ),
    "pendulum_dqn": (
        "cartpole_dqn",
        dict(
            env=dict(act_scale=True, continuous=False),
            policy=dict(
                load_path="pendulum_dqn_seed0/ckpt/ckpt_best.pth.tar", model=dict(obs_shape=3, action_shape=11)
            ),
        ),
        dict(
            env=dict(type="pendulum", import_names=["dizoo.classic_control.pendulum.envs.pendulum_env"]),
            env_manager=dict(type="base"),
        ),
    ),
    "pendulum_ppo": (
        "cartpole_ppo",
        dict(
            env=dict(act_scale=True),
            policy=dict(
                recompute_adv=True,
                action_space="continuous",
                model=dict(
                    critic_head_hidden_size=GONE,
                    actor_head_hidden_size=GONE,
                    obs_shape=3,
                    action_shape=1,
                    action_space="continuous",
                    actor_head_layer_num=0,
                    critic_head_layer_num=0,
                    sigma_type="conditioned",
                    bound_type="tanh",
                ),
                learn=dict(batch_size=32, adv_norm=False, value_norm=True, ignore_done=True),
                collect=dict(n_sample=200),
            ),
        ),
        dict(env=dict(type="pendulum", import_names=["dizoo.classic_control.pendulum.envs.pendulum_env"])),
    ),
    "cartpole_c51": (
        "cartpole_iqn",
        dict(policy=dict(model=dict(num_quantiles=GONE, v_min=-10, v_max=10, n_atom=51), learn=dict(kappa=GONE))),
        dict(policy=dict(type="c51")),
    ),
    "cartpole_fqf": (
        "cartpole_iqn",
        dict(
            policy=dict(
                model=dict(quantile_embedding_size=64),
                learn=dict(learning_rate=GONE, learning_rate_fraction=0.001, learning_rate_quantile=0.001, ent_coef=10),
            )
        ),
        dict(policy=dict(type="fqf")),
    ),
    "cartpole_impala": (
        "cartpole_ppo_offpolicy",
        dict(
            policy=dict(
                priority=False,
                unroll_len=32,
                random_collect_size=256,
                learn=dict(
                    clip_ratio=GONE,
                    nstep_return=GONE,
                    batch_size=128,
                    grad_clip_type="clip_norm",
                    clip_value=5,
                    discount_factor=0.99,
                    lambda_=0.95,
                    rho_clip_ratio=1.0,
                    c_clip_ratio=1.0,
                    rho_pg_clip_ratio=1.0,
                ),
                collect=dict(
                    discount_factor=GONE,
                    gae_lambda=GONE,
                    n_sample=32,
                    unroll_len=32,
                    collector=dict(get_train_sample=GONE, collect_print_freq=1000),
                ),
                other=dict(replay_buffer=dict(max_use=16, sliced=True)),
            )
        ),
        dict(policy=dict(type="impala"), replay_buffer=dict(type="naive")),
    ),
    "cartpole_pg": (
        "cartpole_a2c",
        dict(
            policy=dict(
                action_space="discrete",
                deterministic_eval=True,
                model=dict(encoder_hidden_size_list=GONE),
                learn=dict(value_weight=GONE, adv_norm=GONE, betas=GONE, eps=GONE, batch_size=64),
                collect=dict(n_sample=GONE, gae_lambda=GONE, n_episode=80, collector=dict(get_train_sample=True)),
            )
        ),
        dict(policy=dict(type="pg"), collector=dict(type="episode")),
    ),
    "cartpole_qrdqn": ("cartpole_iqn", dict(), dict(policy=dict(type="qrdqn"))),
    "cartpole_r2d2": ("cartpole_drqn", dict(), dict(policy=dict(type="r2d2"))),
    "cartpole_rainbow": (
        "cartpole_iqn",
        dict(
            policy=dict(
                model=dict(num_quantiles=GONE, v_min=-10, v_max=10, n_atom=51),
                learn=dict(kappa=GONE, ignore_done=False),
                other=dict(replay_buffer=dict(alpha=0.6, beta=0.4, anneal_step=100000)),
                priority_IS_weight=True,
            )
        ),
        dict(policy=dict(type="rainbow")),
    ),
    "hopper_onppo": (
        "pendulum_ppo",
        dict(
            env=dict(
                act_scale=GONE, env_id="Hopper-v3", norm_obs=dict(use_norm=False), norm_reward=dict(use_norm=False)
            ),
            policy=dict(
                cuda=True,
                model=dict(sigma_type=GONE, bound_type=GONE, obs_shape=11, action_shape=3, activation=TANH),
                learn=dict(
                    ignore_done=GONE,
                    batch_size=64,
                    adv_norm=True,
                    lr_scheduler=dict(epoch_num=1000, min_lr_lambda=0.1),
                    grad_clip_type="clip_norm",
                    grad_clip_value=0.5,
                ),
                collect=dict(n_sample=512),
            ),
        ),
        dict(
            env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]), env_manager=dict(type="subprocess")
        ),
    ),
    "pendulum_a2c": (
        "cartpole_a2c",
        dict(
            env=dict(act_scale=True),
            policy=dict(
                action_space="continuous",
                model=dict(action_space="continuous", obs_shape=3, action_shape=1, sigma_type="independent"),
                learn=dict(grad_norm=GONE, epoch_per_collect=10, ignore_done=True),
                collect=dict(n_sample=200, collector=dict(collect_print_freq=1000)),
            ),
        ),
        dict(env=dict(type="pendulum", import_names=["dizoo.classic_control.pendulum.envs.pendulum_env"])),
    ),
    "pong_dqn": (
        "acrobot_dqn",
        dict(
            env=dict(env_id="PongNoFrameskip-v4", frame_stack=4),
            policy=dict(
                cuda=True,
                priority=False,
                model=dict(dueling=GONE, obs_shape=[4, 84, 84], action_shape=6),
                learn=dict(batch_size=32),
            ),
        ),
        dict(replay_buffer=GONE, env=dict(type="atari", import_names=["dizoo.atari.envs.atari_env"])),
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


def _configs(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if name in FILES:
        file = read_config(FOLDER / f"{name}_config.py")
        return _plain(file.main_config), _plain(file.create_config)
    base, main_changes, create_changes = VARIANTS[name]
    main, create = _configs(base)
    return _changed(main, {"exp_name": f"{name}_seed0", **main_changes}), _changed(create, create_changes)


def _changed(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        if value is GONE:
            tree.pop(key, None)
        elif isinstance(value, dict) and isinstance(tree.get(key), dict):
            _changed(tree[key], value)
        else:
            tree[key] = copy.deepcopy(value) if isinstance(value, dict) else value
    return tree


def _plain(tree: Any) -> Any:
    return {key: _plain(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "dict(" + ", ".join(f"{key}={_text(each)}" for key, each in value.items()) + ")"
    return "Tanh()" if value is TANH else repr(value)
