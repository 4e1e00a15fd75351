"""MinAtar/Breakout-v1 with PQN; it needs the extra `minatar`. `env.env_id` chooses another of the five games."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="minatar_breakout_pqn_seed0",
        env=dict(
            env_id="MinAtar/Breakout-v1",
            collector_env_num=32,
            evaluator_env_num=8,
            n_evaluator_episode=16,
            stop_value=float("inf"),
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            # The network of the paper: one convolution of 16 filters, one layer of 128.
            model=dict(encoder_hidden_size_list=[16, 128], encoder_kernel_size=[3], encoder_stride=[1], dueling=False),
            learn=dict(
                epoch_per_collect=2,
                batch_size=256,
                learning_rate=5e-4,
                schedule=dict(env_steps=10_000_000, lr_end=1e-5),
            ),
            # 32 steps of each env.
            collect=dict(n_sample=1024, q_lambda=0.65),
            other=dict(eps=dict(type="linear", start=1.0, end=0.01, decay=1_000_000)),
            eval=dict(evaluator=dict(eval_freq=2000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="minatar", import_names=["dizoo.minatar.envs.minatar_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="pqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
