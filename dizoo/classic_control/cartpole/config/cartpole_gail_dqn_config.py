"""CartPole-v1 with GAIL and DQN, which imitate an expert and see no rewards of the env."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_gail_dqn_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            # Rewards are given step by step.
            nstep=1,
            # The first rows are made at random.
            random_collect_size=500,
            model=dict(encoder_hidden_size_list=[64, 64], dueling=False),
            learn=dict(
                # 4 updates per 8 env steps: rewards change while values are learned.
                update_per_collect=4,
                batch_size=64,
                learning_rate=5e-4,
                target_update_freq=100,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(
                eps=dict(type="exp", start=1.0, end=0.05, decay=2000),
                replay_buffer=dict(replay_buffer_size=20000),
            ),
        ),
        # Rewards of a model that tells the expert's transitions from the policy's; the env's are not learned from.
        reward_model=dict(
            # 10 episodes of an expert: `ding -m serial_gail` trains it and writes them where there are none.
            data_path="cartpole_expert.safetensors",
            hidden_size_list=[64, 64],
            # 2 steps per 8 env steps.
            update_per_collect=2,
            batch_size=64,
            learning_rate=1e-3,
        ),
        expert=dict(config="cartpole_dqn"),
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
        reward_model=dict(type="gail"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_gail

    serial_pipeline_gail((main_config, create_config), seed=0)
