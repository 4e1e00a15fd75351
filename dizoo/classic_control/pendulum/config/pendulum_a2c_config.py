"""Pendulum-v1 with A2C; not recorded yet."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_a2c_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            # Returns differ by 90 either way between starts: with fewer episodes luck would stop the run.
            n_evaluator_episode=50,
            stop_value=-165,
            # Returns are reported as the env counts them.
            norm_reward=dict(use_norm=True, reward_discount=0.9),
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.9,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                learning_rate=7e-4,
                entropy_weight=0.0,
                schedule=dict(env_steps=1000000, lr_end=1e-4),
            ),
            # 8 steps of each env.
            collect=dict(n_sample=64, gae_lambda=0.9),
            # Every 16,000 env steps.
            eval=dict(evaluator=dict(eval_freq=250)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="pendulum",
            import_names=["dizoo.classic_control.pendulum.envs.pendulum_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="a2c"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
