"""Hopper-v5 with a decision transformer; it needs the extra `mujoco`. Sizes are those of the paper, not tuned here."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="hopper_dt_seed0",
        env=dict(
            env_id="Hopper-v5",
            evaluator_env_num=8,
            n_evaluator_episode=8,
        ),
        policy=dict(
            cuda=False,
            rtg_target=3600,
            rtg_scale=1000,
            context_len=20,
            warmup_steps=10000,
            model=dict(n_blocks=3, h_dim=128, n_heads=1, drop_p=0.1),
            learn=dict(
                batch_size=64,
                learning_rate=1e-4,
                grad_clip_norm=0.25,
                train_epoch=10,
            ),
            # Or a file of `ding collect`.
            collect=dict(data_path="minari:mujoco/hopper/medium-v0"),
            eval=dict(evaluator=dict(eval_freq=5000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="dt"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
