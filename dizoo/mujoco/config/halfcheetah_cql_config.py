"""HalfCheetah-v5 with CQL from a file of its steps; it needs the extra `mujoco`. Not tuned here."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="halfcheetah_cql_seed0",
        env=dict(
            env_id="HalfCheetah-v5",
            collector_env_num=1,
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=12000,
        ),
        policy=dict(
            cuda=False,
            model=dict(
                actor_head_hidden_size=256, actor_head_layer_num=2, critic_head_hidden_size=256, critic_head_layer_num=2
            ),
            learn=dict(
                train_epoch=1000,
                batch_size=256,
                learning_rate_q=3e-4,
                learning_rate_policy=1e-4,
                learning_rate_alpha=1e-4,
                num_actions=10,
                min_q_weight=5.0,
            ),
            collect=dict(data_path="data/halfcheetah/medium.safetensors"),
            eval=dict(evaluator=dict(eval_freq=5000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="cql"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
