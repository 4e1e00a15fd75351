"""Hopper-v5 with IQL, from a data set; it needs the extra `mujoco`. Settings of the paper."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="hopper_iql_seed0",
        env=dict(
            env_id="Hopper-v5",
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=6000,
        ),
        policy=dict(
            cuda=False,
            model=dict(
                actor_head_hidden_size=256,
                critic_head_hidden_size=256,
            ),
            learn=dict(
                train_epoch=256,
                batch_size=256,
                learning_rate_q=3e-4,
                learning_rate_value=3e-4,
                learning_rate_policy=3e-4,
                target_theta=0.005,
                tau=0.7,
                beta=3.0,
            ),
            # D4RL's HDF5 files and minari:ID are read too.
            collect=dict(data_path="data/hopper/medium.safetensors"),
            eval=dict(evaluator=dict(eval_freq=10000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="iql"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
