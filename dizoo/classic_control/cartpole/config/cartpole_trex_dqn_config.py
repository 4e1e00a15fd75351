"""CartPole-v1 with DQN from the reward that T-REX learns of ranked episodes; the env gives none."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_trex_dqn_seed0",
        env=dict(
            env_id="CartPole-v1",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=1,
            # The first rows are made at random.
            random_collect_size=500,
            model=dict(encoder_hidden_size_list=[128, 128, 64], dueling=True),
            learn=dict(
                # 8 updates per 8 env steps.
                update_per_collect=8,
                batch_size=128,
                learning_rate=5e-4,
                target_update_freq=80,
                loss="huber",
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.02, decay=3000),
                replay_buffer=dict(replay_buffer_size=100000),
            ),
        ),
        reward_model=dict(
            type="trex",
            # Episodes of checkpoints of 24 to 186, which ding_like.entry.ranked_data.collect_ranked writes.
            data_path="cartpole_ranked.safetensors",
            pretrain_updates=200,
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
