"""Pendulum-v1 with its velocity hidden, and SAC with memory: solved after 20,000 to 40,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_hidden_sac_recurrent_seed0",
        env=dict(
            env_id="Pendulum-v1",
            collector_env_num=4,
            evaluator_env_num=10,
            # Returns differ by 90 either way between starts: with fewer episodes luck would stop the run.
            n_evaluator_episode=50,
            stop_value=-200,
            # Cosine and sine of the angle: which way the pendulum swings follows from what was seen before.
            wrappers=[
                dict(type="obs_select", indices=[0, 1]),
                # From -3 to 3: what changes from step to step, by which the velocity shows, is small.
                dict(type="RescaleObservation", min_obs=-3, max_obs=3),
            ],
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.97,
            # Rows of 3 steps that warm up the recurrent states and 10 that are learned from.
            burnin_step=3,
            learn_unroll_len=10,
            model=dict(cell_type="gru", hidden_size=64, encoder_hidden_size_list=[32]),
            learn=dict(
                # 40 updates per 8 rows, which are 80 env steps.
                update_per_collect=40,
                batch_size=32,
                learning_rate_q=2e-3,
                learning_rate_policy=1e-3,
                learning_rate_alpha=1e-3,
                target_theta=0.05,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(replay_buffer=dict(replay_buffer_size=10000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="sac_recurrent"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
