"""HalfCheetah-v5 with PPO; it needs the extra `mujoco`.

Short pieces of many envs, returns scaled for the critic alone, advantages as they are, computed afresh for each epoch,
a small first deviation; chosen by runs of one or two seeds.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="halfcheetah_ppo_seed0",
        env=dict(
            env_id="HalfCheetah-v5",
            # Observations by running statistics.
            norm_obs=dict(use_norm=True),
            collector_env_num=64,
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=11000,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            recompute_adv=True,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[256, 256],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="relu",
                initial_sigma=0.3,
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=128,
                learning_rate=3e-4,
                value_weight=0.25,
                value_norm=True,
                adv_norm=False,
                schedule=dict(env_steps=1000000, lr_end=0.0),
            ),
            # 32 steps of each env.
            collect=dict(n_sample=2048, gae_lambda=0.95),
            # 16 minibatches, 10 epochs: every 51,200 env steps.
            eval=dict(evaluator=dict(eval_freq=4000)),
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
