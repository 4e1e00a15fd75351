"""Hopper-v5 with TD3+BC, from a data set; it needs the extra `mujoco`. Settings of the paper."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="hopper_td3_bc_seed0",
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
                learning_rate_actor=3e-4,
                learning_rate_critic=3e-4,
                target_theta=0.005,
                actor_update_freq=2,
                noise_sigma=0.2,
                noise_range=dict(min=-0.5, max=0.5),
                alpha=2.5,
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
        policy=dict(type="td3_bc"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
