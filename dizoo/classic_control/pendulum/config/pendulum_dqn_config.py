"""Pendulum-v1 with 11 torques to choose from and double, dueling DQN; not recorded yet."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_dqn_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            # Returns differ by 90 either way between starts: with fewer episodes luck would stop the run.
            n_evaluator_episode=50,
            stop_value=-165,
            # The torques are evenly spaced, the strongest among them.
            continuous=False,
        ),
        policy=dict(
            cuda=False,
            # The whole swing lies within some 30 steps.
            discount_factor=0.97,
            nstep=1,
            # The first rows are made at random.
            random_collect_size=1000,
            model=dict(encoder_hidden_size_list=[64, 64, 64], dueling=True),
            learn=dict(
                # 8 updates per 8 env steps.
                update_per_collect=8,
                batch_size=128,
                learning_rate=1e-3,
                target_update_freq=200,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=5000),
                replay_buffer=dict(replay_buffer_size=100000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="pendulum",
            import_names=["dizoo.classic_control.pendulum.envs.pendulum_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
