from easydict import EasyDict

cartpole_drqn_config = dict(
    exp_name="cartpole_drqn_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=5,
        stop_value=195,
    ),
    policy=dict(
        cuda=False,
        priority=False,
        priority_IS_weight=False,
        model=dict(
            obs_shape=4,
            action_shape=2,
            encoder_hidden_size_list=[128, 128, 64],
        ),
        discount_factor=0.995,
        nstep=5,
        burnin_step=2,
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
        collect=dict(
            n_sample=32,
            unroll_len=42,
            traj_len_inf=True,
            env_num=8,
        ),
        eval=dict(
            env_num=5,
            evaluator=dict(
                eval_freq=30,
            ),
        ),
        other=dict(
            eps=dict(
                type="exp",
                start=0.95,
                end=0.05,
                decay=100000,
            ),
            replay_buffer=dict(
                replay_buffer_size=100000,
                alpha=0.6,
                beta=0.4,
            ),
        ),
    ),
)
cartpole_drqn_config = EasyDict(cartpole_drqn_config)
main_config = cartpole_drqn_config

cartpole_drqn_create_config = dict(
    env=dict(
        type="cartpole",
        import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"],
    ),
    env_manager=dict(
        type="base",
    ),
    policy=dict(
        type="drqn",
    ),
)
cartpole_drqn_create_config = EasyDict(cartpole_drqn_create_config)
create_config = cartpole_drqn_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial -c cartpole_drqn_config.py -s 0`
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
