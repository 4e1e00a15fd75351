"""LunarLander-v3 with PPO: about 265 after 300,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="lunarlander_ppo_seed0",
        env=dict(
            env_id="LunarLander-v3",
            collector_env_num=16,
            evaluator_env_num=10,
            n_evaluator_episode=50,
            stop_value=265,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.999,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=128,
                learning_rate=5e-4,
                entropy_weight=0.01,
                # Returns are hundreds.
                value_norm=True,
                schedule=dict(env_steps=500000, lr_end=5e-5),
            ),
            # 256 steps of each env.
            collect=dict(n_sample=4096, gae_lambda=0.98),
            # 32 minibatches, 10 epochs: every 20,480 env steps.
            eval=dict(evaluator=dict(eval_freq=1600)),
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
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
