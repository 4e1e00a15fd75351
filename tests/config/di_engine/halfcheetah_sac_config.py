from easydict import EasyDict

halfcheetah_sac_config = dict(
    exp_name="halfcheetah_sac_seed0",
    env=dict(
        collector_env_num=1,
        evaluator_env_num=2,
        n_evaluator_episode=2,
        env_id="HalfCheetah-v3",
        norm_obs=dict(
            use_norm=False,
        ),
        norm_reward=dict(
            use_norm=False,
        ),
        stop_value=12000,
    ),
    policy=dict(
        cuda=True,
        random_collect_size=1000,
        model=dict(
            obs_shape=17,
            action_shape=6,
            twin_critic=True,
            action_space="reparameterization",
            actor_head_hidden_size=256,
            critic_head_hidden_size=256,
        ),
        learn=dict(
            update_per_collect=1,
            batch_size=256,
            learning_rate_q=0.001,
            learning_rate_policy=0.001,
            learning_rate_alpha=0.0003,
            ignore_done=True,
            target_theta=0.005,
            discount_factor=0.99,
            alpha=0.2,
            reparameterization=True,
            auto_alpha=False,
        ),
        collect=dict(
            n_sample=1,
            unroll_len=1,
        ),
        command=dict(),
        eval=dict(),
        other=dict(
            replay_buffer=dict(
                replay_buffer_size=1000000,
            ),
        ),
    ),
)
halfcheetah_sac_config = EasyDict(halfcheetah_sac_config)
main_config = halfcheetah_sac_config

halfcheetah_sac_create_config = dict(
    env=dict(
        type="mujoco",
        import_names=["dizoo.mujoco.envs.mujoco_env"],
    ),
    env_manager=dict(
        type="base",
    ),
    policy=dict(
        type="sac",
    ),
    replay_buffer=dict(
        type="naive",
    ),
)
halfcheetah_sac_create_config = EasyDict(halfcheetah_sac_create_config)
create_config = halfcheetah_sac_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial -c halfcheetah_sac_config.py -s 0`
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
