"""MountainCar-v0 with 3-step DQN: about -102 after 50,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="mountain_car_dqn_seed0",
        env=dict(
            env_id="MountainCar-v0",
            # One env: its greedy action stays the same for many steps, which is what first gets the car up.
            collector_env_num=1,
            evaluator_env_num=10,
            n_evaluator_episode=50,
            stop_value=-105,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            double=False,
            nstep=3,
            # The first rows are made at random.
            random_collect_size=1000,
            model=dict(encoder_hidden_size_list=[128, 128], dueling=False),
            learn=dict(
                # 8 updates per 16 env steps.
                update_per_collect=8,
                batch_size=128,
                learning_rate=4e-3,
                target_update_freq=300,
                loss="huber",
            ),
            collect=dict(n_sample=16),
            eval=dict(evaluator=dict(eval_freq=2500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.07, decay=24000),
                replay_buffer=dict(replay_buffer_size=10000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="mountain_car",
            import_names=["dizoo.classic_control.mountain_car.envs.mtcar_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
