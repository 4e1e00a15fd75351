"""CartPole-v1 with DAgger: solved after about 1,000 env steps that an expert has labelled."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_dagger_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=490,
        ),
        policy=dict(
            cuda=False,
            model=dict(encoder_hidden_size_list=[64, 64], head_layer_num=0),
            learn=dict(
                # 16 updates per 64 env steps.
                update_per_collect=16,
                batch_size=64,
                learning_rate=1e-3,
            ),
            # The folder of a run: `ding -m serial_onpolicy -e cartpole -p ppo --exp-name cartpole_expert`.
            collect=dict(n_sample=64, model_path="cartpole_expert"),
            eval=dict(evaluator=dict(eval_freq=80)),
            other=dict(
                beta=dict(type="exp", start=1.0, end=0.0, decay=500),
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
        policy=dict(type="dagger"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
