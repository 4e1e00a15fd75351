"""Bitflip with 20 bits: DQN with hindsight goals, where rewards alone are found once in a million episodes."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="bitflip_her_dqn_seed0",
        env=dict(
            n_bits=20,
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=100,
            # The share of goals that are reached.
            stop_value=0.99,
        ),
        policy=dict(
            cuda=False,
            # With 0.98 values of goals that were never reached fed on one another and grew without end.
            discount_factor=0.9,
            random_collect_size=2000,
            # One hidden layer, as in the paper.
            model=dict(encoder_hidden_size_list=[256], dueling=False, head_layer_num=0),
            learn=dict(
                # 4 updates per 16 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate=1e-3,
                target_theta=0.01,
                loss="huber",
            ),
            collect=dict(n_sample=16),
            eval=dict(evaluator=dict(eval_freq=2500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.1, decay=30000),
                replay_buffer=dict(replay_buffer_size=200000, strategy="future", k=4),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="bitflip", import_names=["dizoo.bitflip.envs.bitflip_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
        replay_buffer=dict(type="her"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
