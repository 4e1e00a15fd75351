"""CartPole-v1 with SQIL, which imitates an expert and sees no rewards of the env."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_sqil_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=490,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            model=dict(encoder_hidden_size_list=[128, 128, 64], dueling=True),
            learn=dict(
                # 8 updates per 8 env steps.
                update_per_collect=8,
                # Beside as many rows of the expert.
                batch_size=64,
                learning_rate=5e-4,
                target_update_freq=80,
                loss="huber",
                alpha=0.1,
            ),
            # Episodes of an expert, which `ding collect` wrote.
            collect=dict(n_sample=8, data_path="cartpole_expert.safetensors"),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(replay_buffer=dict(replay_buffer_size=100000)),
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
        policy=dict(type="sqil"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
