"""HalfCheetah split between two agents, moved by one PPO that sees what both see; it needs the extra `robotics`.

Common settings of the literature for the whole body, not tuned here.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="halfcheetah_2x3_ppo_seed0",
        env=dict(
            scenario="HalfCheetah",
            agent_conf="2x3",
            agent_obsk=1,
            collector_env_num=8,
            evaluator_env_num=8,
            n_evaluator_episode=8,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(epoch_per_collect=10, batch_size=64, learning_rate=3e-4),
            # 256 steps of each env.
            collect=dict(n_sample=2048, gae_lambda=0.95),
            # 32 minibatches, 10 epochs: every 20,480 env steps.
            eval=dict(evaluator=dict(eval_freq=3200)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mamujoco", import_names=["dizoo.multiagent_mujoco.envs.multi_mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=1_000_000)
