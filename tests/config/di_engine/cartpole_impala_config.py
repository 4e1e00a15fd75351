from easydict import EasyDict

cartpole_impala_config = dict(
    exp_name="cartpole_impala_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=5,
        stop_value=195,
    ),
    policy=dict(
        cuda=False,
        priority=False,
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
        collect=dict(
            n_sample=32,
            unroll_len=32,
            collector=dict(
                collect_print_freq=1000,
            ),
        ),
        eval=dict(
            evaluator=dict(
                eval_freq=500,
            ),
        ),
        other=dict(
            replay_buffer=dict(
                replay_buffer_size=1000,
                max_use=16,
                sliced=True,
            ),
        ),
    ),
)
cartpole_impala_config = EasyDict(cartpole_impala_config)
main_config = cartpole_impala_config

cartpole_impala_create_config = dict(
    env=dict(
        type="cartpole",
        import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"],
    ),
    env_manager=dict(
        type="base",
    ),
    policy=dict(
        type="impala",
    ),
    replay_buffer=dict(
        type="naive",
    ),
)
cartpole_impala_create_config = EasyDict(cartpole_impala_create_config)
create_config = cartpole_impala_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial -c cartpole_impala_config.py -s 0`
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
