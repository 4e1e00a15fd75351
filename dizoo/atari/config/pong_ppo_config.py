"""Pong with PPO; it needs the extra `atari`. For a core and 1,500,000 env steps.

A small network and large steps. With two convolutions seed 0 fell short: see Pong in `docs/results.md`.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pong_ppo_seed0",
        env=dict(
            env_id="PongNoFrameskip-v4",
            frame_stack=4,
            collector_env_num=8,
            evaluator_env_num=4,
            n_evaluator_episode=4,
            stop_value=20,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            # The network of Mnih et al. 2015 at half its width, shared by actor and critic.
            model=dict(
                encoder_hidden_size_list=[16, 32, 32, 256],
                encoder_kernel_size=[8, 4, 3],
                encoder_stride=[4, 2, 1],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
            ),
            learn=dict(
                epoch_per_collect=4,
                batch_size=256,
                learning_rate=1e-3,
                clip_ratio=0.2,
                entropy_weight=0.01,
                schedule=dict(env_steps=1_500_000, lr_end=0.0),
            ),
            # 128 steps of each env.
            collect=dict(n_sample=1024, gae_lambda=0.95),
            # 4 minibatches, 4 epochs: every 102,400 env steps.
            eval=dict(evaluator=dict(eval_freq=1600)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="atari", import_names=["dizoo.atari.envs.atari_env"]),
        env_manager=dict(type="ale_vector"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
