"""Taxi with DQN, which takes actions that change something alone: the shortest ways, a mean return of about 8."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="taxi_dqn_seed0",
        env=dict(
            action_mask=True,
            # The longest of the shortest ways is far shorter.
            max_episode_steps=60,
            collector_env_num=8,
            evaluator_env_num=10,
            # Many: a place to begin at from which the way is not found is one of 300.
            n_evaluator_episode=200,
            stop_value=7.7,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
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
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.1, decay=10_000),
                replay_buffer=dict(replay_buffer_size=20_000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="taxi", import_names=["dizoo.taxi.envs.taxi_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
