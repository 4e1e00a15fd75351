"""Pendulum-v1 with GAIL and SAC, which imitate an expert and see no rewards of the env."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_gail_sac_seed0",
        env=dict(
            env_id="Pendulum-v1",
            collector_env_num=4,
            evaluator_env_num=10,
            # Returns differ by 90 either way between starts: with fewer episodes luck would stop the run.
            n_evaluator_episode=50,
            stop_value=-165,
        ),
        policy=dict(
            cuda=False,
            # The whole swing lies within some 30 steps; with 0.99 a solved policy was lost again in 2 of 3 seeds.
            discount_factor=0.97,
            # The first rows are made at random.
            random_collect_size=1000,
            model=dict(actor_head_hidden_size=64, critic_head_hidden_size=64),
            learn=dict(
                # 4 updates per 4 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate_q=1e-3,
                learning_rate_policy=1e-3,
                learning_rate_alpha=1e-3,
                target_theta=0.01,
            ),
            collect=dict(n_sample=4),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(replay_buffer=dict(replay_buffer_size=100000)),
        ),
        # Rewards of a model that tells the expert's transitions from the policy's; the env's are not learned from.
        reward_model=dict(
            # 10 episodes of an expert: `ding -m serial_gail` trains it and writes them where there are none.
            data_path="pendulum_expert.safetensors",
            hidden_size_list=[64, 64],
            # 2 steps per 4 env steps.
            update_per_collect=2,
            batch_size=64,
            learning_rate=1e-3,
            # Without it the discriminator gets ahead, and the policy is lost again after 8,000 env steps.
            gradient_penalty=1.0,
        ),
        expert=dict(config="pendulum_sac"),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="sac"),
        reward_model=dict(type="gail"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_gail

    serial_pipeline_gail((main_config, create_config), seed=0)
