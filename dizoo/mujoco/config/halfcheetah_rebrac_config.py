"""HalfCheetah-v5 with ReBRAC, from a data set; it needs the extra `mujoco`. Settings of the paper."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="halfcheetah_rebrac_seed0",
        env=dict(
            env_id="HalfCheetah-v5",
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=11000,
        ),
        policy=dict(
            cuda=False,
            model=dict(
                actor_head_hidden_size=256,
                actor_head_layer_num=2,
                critic_head_hidden_size=256,
                critic_head_layer_num=2,
                critic_norm_type="LN",
            ),
            learn=dict(
                train_epoch=1024,
                batch_size=1024,
                learning_rate_actor=1e-3,
                learning_rate_critic=1e-3,
                target_theta=0.005,
                # Of the paper's grid of weights for each data set.
                actor_beta=0.001,
                critic_beta=0.01,
            ),
            # D4RL's HDF5 files and minari:ID are read too.
            collect=dict(data_path="data/halfcheetah/medium.safetensors"),
            eval=dict(evaluator=dict(eval_freq=10000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="rebrac"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
