"""LunarLander-v3 with double, dueling, 3-step DQN: about 250 after 50,000 to 200,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="lunarlander_dqn_seed0",
        env=dict(
            env_id="LunarLander-v3",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=50,
            stop_value=240,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            # The first rows are made at random.
            random_collect_size=1000,
            model=dict(encoder_hidden_size_list=[256, 256], dueling=True),
            learn=dict(
                # 4 updates per 8 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate=6.3e-4,
                target_update_freq=250,
                loss="huber",
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=5000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=25000),
                replay_buffer=dict(replay_buffer_size=100000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="lunarlander",
            import_names=["dizoo.box2d.lunarlander.envs.lunarlander_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
