"""CartPole-v1 with double, dueling, 3-step DQN and prioritised replay (Schaul et al. 2016)."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_dqn_per_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,
        ),
        policy=dict(
            cuda=False,
            priority=True,
            priority_IS_weight=True,
            discount_factor=0.99,
            nstep=3,
            # The first rows are made at random.
            random_collect_size=500,
            model=dict(encoder_hidden_size_list=[128, 128, 64], dueling=True),
            learn=dict(
                # 8 updates per 8 env steps.
                update_per_collect=8,
                batch_size=128,
                # Twice that of cartpole_dqn_config.py: weights are at most 1, most of them far below.
                learning_rate=1e-3,
                target_update_freq=80,
                loss="huber",
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.02, decay=3000),
                replay_buffer=dict(
                    type="advanced",
                    replay_buffer_size=100000,
                    alpha=0.6,
                    beta=0.4,
                    # The weights make up for all of the uneven sampling from 12,000 updates on.
                    anneal_step=12000,
                ),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="cartpole",
            import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
