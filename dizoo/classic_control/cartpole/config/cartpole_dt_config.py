"""CartPole-v1 with a decision transformer, which acts for the return that `rtg_target` asks for."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_dt_seed0",
        env=dict(
            evaluator_env_num=10,
            n_evaluator_episode=20,
        ),
        policy=dict(
            cuda=False,
            rtg_target=500,
            rtg_scale=100,
            context_len=20,
            warmup_steps=200,
            model=dict(n_blocks=2, h_dim=64, n_heads=2, drop_p=0.1),
            learn=dict(
                batch_size=64,
                learning_rate=1e-3,
                train_epoch=5,
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
        policy=dict(type="dt"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
