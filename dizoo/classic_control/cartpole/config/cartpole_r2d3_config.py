"""CartPole-v1 with R2D3: the settings of `cartpole_r2d2_config.py`, and sequences of an expert in each batch."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_r2d3_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=5,
            # Rows of 2 steps that warm up the recurrent state and 16 that are learned from.
            burnin_step=2,
            learn_unroll_len=16,
            model=dict(encoder_hidden_size_list=[64], lstm_hidden_size=64, dueling=False, head_layer_num=0),
            learn=dict(
                # 16 updates per 8 rows, which are 128 env steps.
                update_per_collect=16,
                batch_size=32,
                learning_rate=5e-4,
                target_theta=0.005,
                # The expert's actions are preferred by a margin, first by themselves.
                lambda2=10.0,
                pretrain_updates=1000,
            ),
            # Episodes of an expert, which `ding collect` wrote.
            collect=dict(n_sample=8, data_path="cartpole_expert.safetensors"),
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
        policy=dict(type="r2d3"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
