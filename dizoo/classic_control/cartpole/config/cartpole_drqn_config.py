"""CartPole-v1 with DRQN: a recurrent network, sequences drawn evenly."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_drqn_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            # Rows of 16 steps that are learned from, all of them.
            learn_unroll_len=16,
            model=dict(encoder_hidden_size_list=[64], lstm_hidden_size=64),
            learn=dict(
                # 32 updates per 8 rows, which are 128 env steps.
                update_per_collect=32,
                batch_size=16,
                learning_rate=5e-4,
                target_update_freq=80,
                loss="huber",
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.02, decay=5000),
                replay_buffer=dict(replay_buffer_size=10000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="cartpole",
            import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="drqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
