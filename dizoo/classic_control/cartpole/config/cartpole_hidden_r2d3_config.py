"""CartPole-v1 with its velocities hidden, and R2D3: R2D2 with sequences of an expert in each batch."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_hidden_r2d3_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,
            wrappers=[
                # Positions alone: from one of them nothing follows about the velocities.
                dict(type="obs_select", indices=[0, 2]),
                # From -5 to 5: the pole's angle, which stays below 0.21, counts as much as the cart's position.
                dict(type="RescaleObservation", min_obs=-5, max_obs=5),
            ],
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            # Rows of 4 steps that warm up the recurrent state and 16 that are learned from.
            burnin_step=4,
            learn_unroll_len=16,
            model=dict(encoder_hidden_size_list=[64], lstm_hidden_size=64),
            learn=dict(
                # 32 updates per 8 rows, which are 128 env steps.
                update_per_collect=32,
                batch_size=16,
                learning_rate=5e-4,
                # Returns of 100 at most need no rescaling, which brings the values of the actions closer together.
                value_rescale=False,
                loss="huber",
                target_update_freq=80,
                target_theta=None,
                # Sequences of the expert's are preferred by a margin, first by themselves.
                lambda2=1.0,
                pretrain_updates=1000,
            ),
            # Episodes of an expert in this env, which `ding collect` wrote.
            collect=dict(n_sample=8, data_path="cartpole_hidden_expert.safetensors"),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.02, decay=8000),
                replay_buffer=dict(replay_buffer_size=10000),
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
        policy=dict(type="r2d3"),
        replay_buffer=dict(type="advanced"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
