"""CartPole-v1 with A2C: solved after about 30,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_a2c_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=495,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                learning_rate=3e-3,
                entropy_weight=0.0,
                adv_norm=True,
                schedule=dict(env_steps=100000, lr_end=1e-4),
            ),
            # 8 steps of each env.
            collect=dict(n_sample=64, gae_lambda=0.9),
            # Every 2,048 env steps.
            eval=dict(evaluator=dict(eval_freq=32)),
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
        policy=dict(type="a2c"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
