"""MiniGrid-Empty-8x8-v0 with PPO; it needs the extra `minigrid`."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="minigrid_empty8_ppo_seed0",
        env=dict(
            env_id="MiniGrid-Empty-8x8-v0",
            max_step=100,
            collector_env_num=8,
            evaluator_env_num=4,
            n_evaluator_episode=8,
            # 1 - 0.9 * steps / max_step; the shortest way has 11 steps.
            stop_value=0.89,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(epoch_per_collect=10, batch_size=256, learning_rate=1e-3, entropy_weight=0.01),
            # 128 steps of each env.
            collect=dict(n_sample=1024, gae_lambda=0.95),
            # 4 minibatches, 10 epochs: every 4,096 env steps.
            eval=dict(evaluator=dict(eval_freq=160)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="minigrid", import_names=["dizoo.minigrid.envs.minigrid_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
