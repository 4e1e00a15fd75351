"""CartPole-v1 with PPO on a Ray cluster of several machines: docs/ray.md says how to start one.

ding -m ray -c cartpole_ppo_ray_config.py --address HOST:6379
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_ppo_ray_seed0",
        env=dict(
            # Of each collector.
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=495,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            # Two towers of 64-64 with linear outputs.
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
                schedule=dict(env_steps=60000, lr_end=1e-4),
            ),
            # 16 steps of each env of 4 collectors.
            collect=dict(n_sample=512, gae_lambda=0.9),
            # 4 minibatches, 10 epochs: every 1,024 env steps.
            eval=dict(evaluator=dict(eval_freq=80)),
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
        policy=dict(type="ppo"),
    )
)
system_config = EasyDict(
    dict(
        ray=dict(
            # A slow or busy machine delays no other: once three of four have their rows, the fourth stops at
            # the next step after half of its own.
            collect=dict(workers=4, comm="sync", fraction_samples=0.5, fraction_workers=0.75),
            # Machines go away now and then.
            failure=dict(restarts_per_10min=20, when_spent="shrink"),
        )
    )
)

if __name__ == "__main__":
    from ding_like.entry import ray_pipeline

    ray_pipeline((main_config, create_config, system_config), seed=0)
