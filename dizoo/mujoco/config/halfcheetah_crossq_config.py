"""HalfCheetah-v5 with CrossQ; it needs the extra `mujoco`. Common settings of the literature, not tuned here."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="halfcheetah_crossq_seed0",
        env=dict(
            env_id="HalfCheetah-v5",
            collector_env_num=4,
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=11000,
        ),
        policy=dict(
            cuda=False,
            # The first rows are made at random.
            random_collect_size=10000,
            model=dict(actor_head_hidden_size=256, critic_head_hidden_size=256),
            learn=dict(
                # An update for each env step.
                update_per_collect=4,
                batch_size=256,
            ),
            collect=dict(n_sample=4),
            eval=dict(evaluator=dict(eval_freq=5000)),
            other=dict(replay_buffer=dict(replay_buffer_size=1000000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="mujoco", import_names=["dizoo.mujoco.envs.mujoco_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="crossq"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
