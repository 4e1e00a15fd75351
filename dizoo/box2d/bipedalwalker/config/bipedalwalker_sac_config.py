"""BipedalWalker-v3 with SAC: 310 after 70,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="bipedalwalker_sac_seed0",
        env=dict(
            env_id="BipedalWalker-v3",
            # In training a fall costs 10, not 100: else it is safest to stand still.
            rew_clip=True,
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=295,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
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
            type="bipedalwalker",
            import_names=["dizoo.box2d.bipedalwalker.envs.bipedalwalker_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="sac"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
