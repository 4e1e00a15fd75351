"""CartPole-v1 with Rainbow: double, dueling, distributional, noisy, 5-step, prioritised."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_rainbow_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            # Above the bar of 475: of many evaluations the first good one flatters.
            stop_value=490,
        ),
        policy=dict(
            cuda=False,
            priority=True,
            priority_IS_weight=True,
            discount_factor=0.99,
            nstep=5,
            # The first rows are made at random.
            random_collect_size=500,
            model=dict(
                encoder_hidden_size_list=[128, 128],
                head_hidden_size=64,
                # A reward of 1 per step, discounted by 0.99, adds up to at most 100.
                v_min=0,
                v_max=100,
                n_atom=51,
            ),
            learn=dict(
                # 4 updates per 8 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate=2e-3,
                target_update_freq=40,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(
                # Noise alone explores.
                eps=dict(type="linear", start=0.0, end=0.0, decay=1),
                replay_buffer=dict(
                    type="advanced",
                    replay_buffer_size=20000,
                    alpha=0.5,
                    beta=0.4,
                    # The weights make up for all of the uneven sampling from 10,000 updates on.
                    anneal_step=10000,
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
        policy=dict(type="rainbow"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
