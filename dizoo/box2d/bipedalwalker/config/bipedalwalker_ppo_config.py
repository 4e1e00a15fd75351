"""BipedalWalker-v3 with PPO, observations and rewards normalised; not recorded yet."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="bipedalwalker_ppo_seed0",
        env=dict(
            env_id="BipedalWalker-v3",
            collector_env_num=16,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=300,
            # Returns are reported as the env counts them.
            norm_obs=dict(use_norm=True),
            norm_reward=dict(use_norm=True, reward_discount=0.999),
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.999,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=256,
                learning_rate=3e-4,
                clip_ratio=0.18,
            ),
            # 512 steps of each env.
            collect=dict(n_sample=8192, gae_lambda=0.95),
            # 32 minibatches, 10 epochs: every 40,960 env steps.
            eval=dict(evaluator=dict(eval_freq=1600)),
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
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
