"""HalfCheetah-v5 with PPO; it needs the extra `mujoco`.

Short pieces of many envs, advantages computed afresh for each epoch and a smaller first deviation, chosen by a few runs
of one seed.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="halfcheetah_ppo_seed0",
        env=dict(
            env_id="HalfCheetah-v5",
            # Observations and rewards by running statistics; what is reported is the env's own.
            norm_obs=dict(use_norm=True),
            norm_reward=dict(use_norm=True, reward_discount=0.99),
            collector_env_num=64,
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=11000,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            recompute_adv=True,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
                initial_sigma=0.6,
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=64,
                learning_rate=3e-4,
                value_weight=0.25,
                schedule=dict(env_steps=1000000, lr_end=0.0),
            ),
            # 32 steps of each env.
            collect=dict(n_sample=2048, gae_lambda=0.95),
            # 32 minibatches, 10 epochs: every 51,200 env steps.
            eval=dict(evaluator=dict(eval_freq=8000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
