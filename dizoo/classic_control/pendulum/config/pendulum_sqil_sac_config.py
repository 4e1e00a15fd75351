"""Pendulum-v1 with SQIL over SAC, which imitates an expert and sees no rewards of the env."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_sqil_sac_seed0",
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
                # Beside as many rows of the expert.
                batch_size=128,
                learning_rate_q=1e-3,
                learning_rate_policy=1e-3,
                learning_rate_alpha=1e-3,
                target_theta=0.01,
            ),
            # Episodes of an expert, which `ding collect` wrote.
            collect=dict(n_sample=4, data_path="pendulum_expert.safetensors"),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(replay_buffer=dict(replay_buffer_size=100000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="sqil_sac"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
