"""Hopper-v5 with BCQ from a file of its steps; it needs the extra `mujoco`. Not tuned here."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="hopper_bcq_seed0",
        env=dict(
            env_id="Hopper-v5",
            collector_env_num=1,
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=6000,
        ),
        policy=dict(
            cuda=False,
            model=dict(actor_head_hidden_size=[400, 300], critic_head_hidden_size=[400, 300], phi=0.05),
            learn=dict(
                train_epoch=1000,
                batch_size=100,
                learning_rate_q=1e-3,
                learning_rate_policy=1e-3,
                learning_rate_vae=1e-3,
                lmbda=0.75,
            ),
            collect=dict(data_path="data/hopper/medium.safetensors"),
            eval=dict(evaluator=dict(eval_freq=5000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="bcq"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
