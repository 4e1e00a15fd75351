"""CliffWalking with DQN: the shortest safe way, a return of -13."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cliffwalking_dqn_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=1,
            n_evaluator_episode=1,
            stop_value=-13,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            # Over several steps, an agent that explores learns to keep away from the cliff.
            nstep=1,
            random_collect_size=500,
            model=dict(encoder_hidden_size_list=[128], dueling=False, head_layer_num=0),
            learn=dict(
                update_per_collect=4,
                batch_size=128,
                learning_rate=2e-3,
                target_update_freq=100,
                loss="huber",
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=250)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.1, decay=5000),
                replay_buffer=dict(replay_buffer_size=20_000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="cliffwalking", import_names=["dizoo.cliffwalking.envs.cliffwalking_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
