"""Pong with DQN; it needs the extra `atari`. Settings of Mnih et al. 2015 on fewer frames, not tuned here."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pong_dqn_seed0",
        env=dict(
            env_id="PongNoFrameskip-v4",
            frame_stack=4,
            collector_env_num=8,
            evaluator_env_num=4,
            n_evaluator_episode=4,
            stop_value=20,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            random_collect_size=5000,
            # The network of Mnih et al. 2015 under a dueling head.
            model=dict(head_hidden_size=512),
            learn=dict(
                # An update for 4 env steps.
                update_per_collect=8,
                batch_size=32,
                learning_rate=1e-4,
                target_update_freq=500,
                loss="huber",
            ),
            collect=dict(n_sample=32),
            eval=dict(evaluator=dict(eval_freq=10000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.02, decay=250000),
                # Each frame is kept once: 7 KB a row.
                replay_buffer=dict(replay_buffer_size=100000, frame_stack=4),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="atari", import_names=["dizoo.atari.envs.atari_env"]),
        env_manager=dict(type="ale_vector"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
