"""Pendulum-v1 with behavioural cloning of 20 episodes of an expert."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_bc_seed0",
        env=dict(
            env_id="Pendulum-v1",
            evaluator_env_num=10,
            n_evaluator_episode=10,
        ),
        policy=dict(
            cuda=False,
            model=dict(encoder_hidden_size_list=[256, 256], head_layer_num=0),
            loss_type="mse_loss",
            learn=dict(
                batch_size=128,
                learning_rate=1e-3,
                train_epoch=150,
            ),
            # Written by `python -m tests.learning.experts pendulum`, or by `ding collect` of a run of yours.
            collect=dict(data_path="pendulum_expert.safetensors"),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="bc"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_bc

    serial_pipeline_bc((main_config, create_config), seed=0)
