"""Acrobot-v1 with PPO: about -80 after 80,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="acrobot_ppo_seed0",
        env=dict(
            env_id="Acrobot-v1",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=50,
            stop_value=-80,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
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
                learning_rate=1e-3,
                schedule=dict(env_steps=150000, lr_end=1e-4),
            ),
            # 128 steps of each env.
            collect=dict(n_sample=1024, gae_lambda=0.95),
            # 8 minibatches, 10 epochs: every 4,096 env steps.
            eval=dict(evaluator=dict(eval_freq=320)),
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
