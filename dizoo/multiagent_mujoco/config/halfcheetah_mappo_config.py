"""HalfCheetah split between two agents of three joints with MAPPO; it needs the extra `robotics`."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="halfcheetah_2x3_mappo_seed0",
        env=dict(
            scenario="HalfCheetah",
            agent_conf="2x3",
            agent_obsk=1,
            collector_env_num=16,
            evaluator_env_num=8,
            n_evaluator_episode=8,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            model=dict(
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
                initial_sigma=0.6,
            ),
            # 16 minibatches of 256 agents' rows in each of 10 epochs.
            learn=dict(
                epoch_per_collect=10, batch_size=256, learning_rate=3e-4, entropy_weight=0.0, grad_clip_value=0.5
            ),
            # 128 steps of each env.
            collect=dict(n_sample=2048, gae_lambda=0.95),
            eval=dict(evaluator=dict(eval_freq=4000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mamujoco", import_names=["dizoo.multiagent_mujoco.envs.multi_mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="mappo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=1_000_000)
