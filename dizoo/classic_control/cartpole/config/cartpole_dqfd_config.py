"""CartPole-v1 with DQfD: the settings of `cartpole_dqn_config.py`, and rows of an expert in each batch."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_dqfd_seed0",
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
            # The first rows are made at random.
            random_collect_size=500,
            model=dict(encoder_hidden_size_list=[128, 128, 64], dueling=True),
            learn=dict(
                # 8 updates per 8 env steps.
                update_per_collect=8,
                batch_size=128,
                learning_rate=5e-4,
                target_update_freq=80,
                loss="huber",
                # Values come near 100, beside which a weight of 1 is little.
                lambda2=10.0,
                # Updates on the expert's rows alone, before anything is collected.
                pretrain_updates=1000,
            ),
            # Episodes of an expert, which `ding collect` wrote.
            collect=dict(n_sample=8, data_path="cartpole_expert.safetensors"),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.02, decay=3000),
                replay_buffer=dict(replay_buffer_size=100000),
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
        policy=dict(type="dqfd"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
