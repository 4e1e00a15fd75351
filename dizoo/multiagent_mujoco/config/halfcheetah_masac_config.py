"""HalfCheetah split between two agents of three joints each with MASAC; it needs the extra `robotics`.

Common settings of the literature for the whole body, not tuned here.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="halfcheetah_2x3_masac_seed0",
        env=dict(
            scenario="HalfCheetah",
            agent_conf="2x3",
            agent_obsk=1,
            collector_env_num=4,
            evaluator_env_num=8,
            n_evaluator_episode=8,
        ),
        policy=dict(
            cuda=False,
            # The first rows are made at random.
            random_collect_size=10000,
            discount_factor=0.99,
            model=dict(actor_hidden_size_list=[256, 256], critic_hidden_size_list=[256, 256]),
            learn=dict(
                # An update for each env step.
                update_per_collect=4,
                batch_size=256,
                learning_rate_q=1e-3,
                learning_rate_policy=3e-4,
                learning_rate_alpha=3e-4,
            ),
            collect=dict(n_sample=4),
            eval=dict(evaluator=dict(eval_freq=5000)),
            other=dict(replay_buffer=dict(replay_buffer_size=1000000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mamujoco", import_names=["dizoo.multiagent_mujoco.envs.multi_mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="masac"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=1_000_000)
