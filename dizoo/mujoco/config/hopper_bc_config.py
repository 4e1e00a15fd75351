"""Hopper-v5 with behavioural cloning of a data set; it needs the extra `mujoco`."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="hopper_bc_seed0",
        env=dict(
            env_id="Hopper-v5",
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=6000,
        ),
        policy=dict(
            cuda=False,
            model=dict(encoder_hidden_size_list=[256, 256], head_layer_num=0),
            loss_type="mse_loss",
            learn=dict(
                train_epoch=26,
                batch_size=256,
                learning_rate=1e-3,
            ),
            # D4RL's HDF5 files and minari:ID are read too.
            collect=dict(data_path="data/hopper/medium.safetensors"),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="bc"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
