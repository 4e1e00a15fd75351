"""LunarLanderContinuous-v3 with TD3; not recorded yet."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="lunarlander_td3_seed0",
        env=dict(
            env_id="LunarLanderContinuous-v3",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=250,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            # The first rows are made at random.
            random_collect_size=10000,
            model=dict(actor_head_hidden_size=256, critic_head_hidden_size=256),
            learn=dict(
                # 8 updates per 8 env steps.
                update_per_collect=8,
                batch_size=256,
                learning_rate_actor=1e-3,
                learning_rate_critic=1e-3,
            ),
            collect=dict(n_sample=8, noise_sigma=0.1),
            eval=dict(evaluator=dict(eval_freq=10000)),
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
        policy=dict(type="td3"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
