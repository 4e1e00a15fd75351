"""LunarLander-v3 with A2C; not recorded yet."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="lunarlander_a2c_seed0",
        env=dict(
            env_id="LunarLander-v3",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=250,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.995,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                learning_rate=8e-4,
                entropy_weight=1e-5,
                schedule=dict(env_steps=1000000, lr_end=1e-4),
            ),
            # 5 steps of each env.
            collect=dict(n_sample=40, gae_lambda=1.0),
            # Every 20,000 env steps.
            eval=dict(evaluator=dict(eval_freq=500)),
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
        policy=dict(type="a2c"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
