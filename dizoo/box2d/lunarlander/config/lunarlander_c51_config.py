"""LunarLander-v3 with double, dueling, 3-step C51; not recorded yet."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="lunarlander_c51_seed0",
        env=dict(
            env_id="LunarLander-v3",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=250,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            # The first rows are made at random.
            random_collect_size=2000,
            # A crash costs 100 and a good flight earns 300, discounted.
            model=dict(encoder_hidden_size_list=[256, 128, 64], dueling=True, v_min=-300, v_max=300, n_atom=51),
            learn=dict(
                # 4 updates per 8 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate=5e-4,
                target_update_freq=250,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=5000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=20000),
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
        policy=dict(type="c51"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
