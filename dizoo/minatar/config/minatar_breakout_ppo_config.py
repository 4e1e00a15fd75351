"""MinAtar/Breakout-v1 with PPO; it needs the extra `minatar`. `env.env_id` chooses another of the five games.

Large batches and large steps: with 4,096 rows and a learning rate of 1e-3, one seed of three stayed at a return of 7.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="minatar_breakout_ppo_seed0",
        env=dict(
            env_id="MinAtar/Breakout-v1",
            collector_env_num=64,
            evaluator_env_num=8,
            n_evaluator_episode=16,
            stop_value=float("inf"),
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            # The network of the paper: one convolution of 16 filters, one layer of 128.
            model=dict(encoder_hidden_size_list=[16, 128], encoder_kernel_size=[3], encoder_stride=[1]),
            learn=dict(
                epoch_per_collect=4,
                batch_size=1024,
                learning_rate=5e-3,
                entropy_weight=0.01,
                schedule=dict(env_steps=10_000_000, lr_end=0.0),
            ),
            # 128 steps of each env.
            collect=dict(n_sample=8192, gae_lambda=0.95),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="minatar", import_names=["dizoo.minatar.envs.minatar_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
