"""CartPole-v1 with SQN: solved after about 10,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_sqn_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=490,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            # The first rows are made at random.
            random_collect_size=500,
            model=dict(
                twin_critic=True,
                encoder_hidden_size_list=[64, 64],
                critic_head_hidden_size=64,
            ),
            learn=dict(
                # 4 updates per 8 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate_q=3e-3,
                target_theta=0.02,
                alpha=0.1,
                # Drawing uniformly has 0.69.
                target_entropy=0.3,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(replay_buffer=dict(replay_buffer_size=100000)),
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
        policy=dict(type="sqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
