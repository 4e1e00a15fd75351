"""CartPole-v1 with behavioural cloning: 10 episodes of an expert are enough."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_bc_seed0",
        env=dict(
            evaluator_env_num=10,
            n_evaluator_episode=20,
        ),
        policy=dict(
            cuda=False,
            model=dict(encoder_hidden_size_list=[64, 64], head_layer_num=0),
            learn=dict(
                batch_size=64,
                learning_rate=1e-3,
                train_epoch=20,
            ),
            # Written by `python -m tests.learning.experts cartpole`, or by `ding collect` of a run of yours.
            collect=dict(data_path="cartpole_expert.safetensors"),
            eval=dict(evaluator=dict(eval_freq=200)),
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
        policy=dict(type="bc"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_bc

    serial_pipeline_bc((main_config, create_config), seed=0)
