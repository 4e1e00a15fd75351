"""LunarLander-v3 with discrete SAC; not recorded yet."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="lunarlander_discrete_sac_seed0",
        env=dict(
            env_id="LunarLander-v3",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=250,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            # The first rows are made at random.
            random_collect_size=5000,
            model=dict(
                twin_critic=True,
                encoder_hidden_size_list=[256, 256],
                actor_head_hidden_size=128,
                critic_head_hidden_size=128,
            ),
            learn=dict(
                # 4 updates per 8 env steps.
                update_per_collect=4,
                batch_size=256,
                learning_rate_q=5e-4,
                learning_rate_policy=5e-4,
                target_theta=0.005,
                # Rewards of a step are about 1: drawing uniformly from 4 actions is worth 0.7 of them.
                alpha=0.5,
                auto_alpha=False,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=5000)),
            other=dict(replay_buffer=dict(replay_buffer_size=200000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="lunarlander",
            import_names=["dizoo.box2d.lunarlander.envs.lunarlander_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="discrete_sac"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
