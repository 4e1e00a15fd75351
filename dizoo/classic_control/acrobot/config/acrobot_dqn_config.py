"""Acrobot-v1 with double, dueling, 3-step DQN: about -85 after 35,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="acrobot_dqn_seed0",
        env=dict(
            env_id="Acrobot-v1",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=50,
            stop_value=-84,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            # The first rows are made at random.
            random_collect_size=1000,
            model=dict(encoder_hidden_size_list=[128, 128], dueling=True),
            learn=dict(
                # 4 updates per 8 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate=6.3e-4,
                target_update_freq=250,
                loss="huber",
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=2500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=7500),
                replay_buffer=dict(replay_buffer_size=50000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="acrobot",
            import_names=["dizoo.classic_control.acrobot.envs.acrobot_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
