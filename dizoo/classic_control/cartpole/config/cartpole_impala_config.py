"""CartPole-v1 with IMPALA: solved after about 8,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_impala_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=495,
            # Numbers near 1: values of 100 steps would take the critic long to reach.
            wrappers=[dict(type="reward_norm"), dict(type="obs_norm")],
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            unroll_len=32,
            # Two towers of 64-64 with linear outputs.
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                update_per_collect=8,
                batch_size=16,
                learning_rate=1e-3,
                entropy_weight=0.02,
                schedule=dict(env_steps=60000),
            ),
            # Sequences of up to 32 steps: one of each env.
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=80)),
            other=dict(replay_buffer=dict(replay_buffer_size=64)),
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
        policy=dict(type="impala"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
