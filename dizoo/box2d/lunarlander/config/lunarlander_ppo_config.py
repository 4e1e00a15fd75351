"""LunarLander-v3 with PPO."""

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
                epoch_per_collect=4,
                batch_size=64,
                learning_rate=1e-3,
                entropy_weight=0.01,
                schedule=dict(env_steps=500000, lr_end=1e-4),
            ),
            # 256 steps of each env.
            collect=dict(n_sample=4096, gae_lambda=0.98),
            # 64 minibatches, 4 epochs: every 20,480 env steps.
            eval=dict(evaluator=dict(eval_freq=1280)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
