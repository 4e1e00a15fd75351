"""CartPole configs in the form in which users of DI-engine have them, one for each policy.

They are written down from its documentation: names of keys, the values that its pages give, shapes of the env spelled
out, `stop_value` 195 of CartPole-v0, commanders' and evaluators' sections. Nothing here is adapted to this package.
DI-engine's off-policy PPG, which keeps two buffers and has a script of its own, is not among them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Section = dict[str, Any]


class Pair(NamedTuple):
    """Hold what one config file defines."""

    main_config: Section
    create_config: Section


def _env() -> Section:
    return dict(collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195)


def _eps() -> Section:
    return dict(type="exp", start=0.95, end=0.1, decay=10000)


def _pair(name: str, policy: Section, **create: Section) -> Pair:
    main = dict(exp_name=f"cartpole_{name}_seed0", env=_env(), policy=policy)
    chosen: Section = dict(
        env=dict(type="cartpole", import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"]),
        env_manager=dict(type="base"),
    )
    return Pair(main, {**chosen, "policy": dict(type=name), **create})


def _value_based(model: Section, learn: Section, **policy: Any) -> Section:
    """Return the policy section that the configs of C51, QR-DQN, IQN, FQF and Rainbow have in common."""
    return dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], **model),
        discount_factor=0.97,
        nstep=3,
        learn=dict(update_per_collect=3, batch_size=64, target_update_freq=100, **learn),
        collect=dict(n_sample=80, unroll_len=1),
        other=dict(eps=_eps(), replay_buffer=dict(replay_buffer_size=20000)),
        **policy,
    )


DQN = _pair(
    "dqn",
    dict(
        cuda=False,
        load_path="cartpole_dqn_seed0/ckpt/ckpt_best.pth.tar",
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        nstep=1,
        discount_factor=0.97,
        learn=dict(batch_size=64, learning_rate=0.001),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=40)),
        other=dict(eps=_eps(), replay_buffer=dict(replay_buffer_size=20000)),
    ),
    env_manager=dict(type="subprocess"),
    replay_buffer=dict(type="deque", import_names=["ding.data.buffer.deque_buffer_wrapper"]),
)
DQN.main_config["env"]["replay_path"] = "cartpole_dqn_seed0/video"

C51 = _pair("c51", _value_based(dict(v_min=-10, v_max=10, n_atom=51), dict(learning_rate=0.001), priority=True))
QRDQN = _pair("qrdqn", _value_based(dict(num_quantiles=64), dict(learning_rate=0.001, kappa=1.0), priority=True))
IQN = _pair("iqn", _value_based(dict(num_quantiles=32), dict(learning_rate=0.001, kappa=1.0), priority=True))
FQF = _pair(
    "fqf",
    _value_based(
        dict(num_quantiles=32, quantile_embedding_size=64),
        dict(learning_rate_fraction=0.001, learning_rate_quantile=0.001, ent_coef=10, kappa=1.0),
        priority=True,
    ),
)
RAINBOW = _pair(
    "rainbow",
    _value_based(
        dict(v_min=-10, v_max=10, n_atom=51),
        dict(learning_rate=0.001, ignore_done=False),
        priority=True,
        priority_IS_weight=True,
    ),
)
RAINBOW.main_config["policy"]["other"]["replay_buffer"].update(alpha=0.6, beta=0.4, anneal_step=100000)


def _recurrent() -> Section:
    return dict(
        cuda=False,
        priority=False,
        priority_IS_weight=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64]),
        discount_factor=0.995,
        nstep=5,
        burnin_step=2,
        # The sequence without its burn-in; unroll_len = burnin_step + learn_unroll_len.
        learn_unroll_len=40,
        unroll_len=42,
        learn=dict(
            update_per_collect=5,
            batch_size=64,
            learning_rate=0.0005,
            target_update_theta=0.001,
            value_rescale=True,
            ignore_done=False,
        ),
        collect=dict(n_sample=32, unroll_len=42, traj_len_inf=True, env_num=8),
        eval=dict(env_num=5, evaluator=dict(eval_freq=30)),
        other=dict(
            eps=dict(type="exp", start=0.95, end=0.05, decay=100000),
            replay_buffer=dict(replay_buffer_size=100000, alpha=0.6, beta=0.4),
        ),
    )


R2D2 = _pair("r2d2", _recurrent())
# DI-engine learns its DRQN model by this form too.
DRQN = _pair("drqn", _recurrent())

IMPALA = _pair(
    "impala",
    dict(
        cuda=False,
        priority=False,
        # Steps of a trajectory, over which V-trace targets are computed.
        unroll_len=32,
        random_collect_size=256,
        model=dict(
            obs_shape=4,
            action_shape=2,
            encoder_hidden_size_list=[64, 64],
            critic_head_hidden_size=64,
            actor_head_hidden_size=64,
        ),
        learn=dict(
            update_per_collect=10,
            batch_size=128,
            learning_rate=0.0005,
            grad_clip_type="clip_norm",
            clip_value=5,
            value_weight=0.5,
            entropy_weight=0.01,
            discount_factor=0.99,
            lambda_=0.95,
            rho_clip_ratio=1.0,
            c_clip_ratio=1.0,
            rho_pg_clip_ratio=1.0,
        ),
        collect=dict(n_sample=32, unroll_len=32, collector=dict(collect_print_freq=1000)),
        eval=dict(evaluator=dict(eval_freq=500)),
        other=dict(replay_buffer=dict(replay_buffer_size=1000, max_use=16, sliced=True)),
    ),
    replay_buffer=dict(type="naive"),
)

SAC = _pair(
    "discrete_sac",
    dict(
        cuda=False,
        random_collect_size=0,
        multi_agent=False,
        model=dict(
            obs_shape=4,
            action_shape=2,
            twin_critic=True,
            encoder_hidden_size_list=[64, 64],
            actor_head_hidden_size=64,
            critic_head_hidden_size=64,
        ),
        learn=dict(
            update_per_collect=2,
            batch_size=64,
            learning_rate_q=5e-3,
            learning_rate_policy=5e-3,
            learning_rate_alpha=3e-4,
            ignore_done=False,
            target_theta=0.01,
            discount_factor=0.99,
            alpha=0.2,
            reparameterization=True,
            auto_alpha=False,
        ),
        collect=dict(env_num=8, n_sample=256, unroll_len=1),
        command=dict(),
        eval=dict(env_num=5, evaluator=dict(eval_freq=50)),
        other=dict(replay_buffer=dict(replay_buffer_size=int(1e5))),
    ),
)

PG = _pair(
    "pg",
    dict(
        cuda=False,
        action_space="discrete",
        deterministic_eval=True,
        model=dict(obs_shape=4, action_shape=2),
        learn=dict(batch_size=64, learning_rate=0.001, entropy_weight=0.001, grad_norm=5, ignore_done=False),
        collect=dict(n_episode=80, unroll_len=1, discount_factor=0.9, collector=dict(get_train_sample=True)),
        eval=dict(evaluator=dict(eval_freq=50)),
    ),
    collector=dict(type="episode"),
)


def _actor_critic() -> Section:
    return dict(
        obs_shape=4,
        action_shape=2,
        encoder_hidden_size_list=[64, 64, 128],
        critic_head_hidden_size=128,
        actor_head_hidden_size=128,
    )


PPO = _pair(
    "ppo",
    dict(
        cuda=False,
        action_space="discrete",
        model=dict(action_space="discrete", **_actor_critic()),
        learn=dict(
            epoch_per_collect=2,
            batch_size=64,
            learning_rate=0.001,
            value_weight=0.5,
            entropy_weight=0.01,
            clip_ratio=0.2,
            learner=dict(hook=dict(save_ckpt_after_iter=100)),
        ),
        collect=dict(n_sample=256, unroll_len=1, discount_factor=0.9, gae_lambda=0.95),
        eval=dict(evaluator=dict(eval_freq=100)),
    ),
)

PPO_OFFPOLICY = _pair(
    "ppo_offpolicy",
    dict(
        cuda=False,
        model=_actor_critic(),
        learn=dict(
            update_per_collect=6,
            batch_size=64,
            learning_rate=0.001,
            value_weight=0.5,
            entropy_weight=0.01,
            clip_ratio=0.2,
            nstep_return=False,
        ),
        collect=dict(
            n_sample=128, unroll_len=1, discount_factor=0.9, gae_lambda=0.95, collector=dict(get_train_sample=True)
        ),
        eval=dict(evaluator=dict(eval_freq=40)),
        other=dict(replay_buffer=dict(replay_buffer_size=5000)),
    ),
)


PPG = _pair(
    "ppg",
    dict(
        cuda=False,
        model=_actor_critic(),
        learn=dict(
            epoch_per_collect=2,
            batch_size=64,
            learning_rate=0.001,
            value_weight=0.5,
            entropy_weight=0.01,
            clip_ratio=0.2,
            aux_freq=8,
            aux_train_epoch=6,
            beta_weight=1,
        ),
        collect=dict(n_sample=128, unroll_len=1, discount_factor=0.9, gae_lambda=0.95),
        eval=dict(evaluator=dict(eval_freq=40)),
    ),
)

A2C = _pair(
    "a2c",
    dict(
        cuda=False,
        priority=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64]),
        learn=dict(
            batch_size=40,
            learning_rate=0.001,
            value_weight=0.5,
            entropy_weight=0.01,
            adv_norm=False,
            grad_norm=0.5,
            betas=(0.9, 0.999),
            eps=1e-8,
            ignore_done=False,
        ),
        collect=dict(n_sample=80, unroll_len=1, discount_factor=0.9, gae_lambda=0.95),
        eval=dict(evaluator=dict(eval_freq=50)),
    ),
)

# The name of the policy -> its config.
CONFIGS: dict[str, Pair] = {
    pair.create_config["policy"]["type"]: pair
    for pair in (
        *(DQN, C51, QRDQN, IQN, FQF, RAINBOW, R2D2, DRQN, IMPALA, SAC, PG),
        *(PPO, PPO_OFFPOLICY, PPG, A2C),
    )
}
