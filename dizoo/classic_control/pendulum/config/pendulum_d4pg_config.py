"""Pendulum-v1 with D4PG: solved after about 4,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_d4pg_seed0",
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
            # The whole swing lies within some 30 steps.
            discount_factor=0.97,
            # With the 5 of the paper some seeds do not learn.
            nstep=3,
            # The first rows are made at random.
            random_collect_size=1000,
            # A step costs up to 16.3: without a swing returns are some -300.
            model=dict(actor_head_hidden_size=64, critic_head_hidden_size=64, v_min=-300, v_max=0),
            learn=dict(
                # 4 updates per 4 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate_actor=1e-3,
                learning_rate_critic=1e-3,
                target_theta=0.01,
            ),
            collect=dict(n_sample=4, noise_sigma=0.1),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(replay_buffer=dict(replay_buffer_size=100000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="d4pg"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
