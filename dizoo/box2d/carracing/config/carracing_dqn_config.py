"""CarRacing-v3 with double, dueling DQN from images, with five actions; not recorded yet."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="carracing_dqn_seed0",
        env=dict(
            env_id="CarRacing-v3",
            collector_env_num=4,
            evaluator_env_num=4,
            n_evaluator_episode=8,
            stop_value=900,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            # The first rows are made at random.
            random_collect_size=2000,
            model=dict(encoder_hidden_size_list=[32, 64, 64, 128], dueling=True),
            learn=dict(
                # 1 update per 4 env steps.
                update_per_collect=1,
                batch_size=64,
                learning_rate=1e-4,
                target_update_freq=1000,
            ),
            collect=dict(n_sample=4),
            eval=dict(evaluator=dict(eval_freq=10000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=100000),
                # 28 kB an image.
                replay_buffer=dict(replay_buffer_size=30000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="carracing",
            import_names=["dizoo.box2d.carracing.envs.carracing_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
