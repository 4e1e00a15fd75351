"""CartPole-v1 with PPO from the reward that T-REX learns of ranked episodes; the env gives none."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_trex_ppo_seed0",
        env=dict(
            env_id="CartPole-v1",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=495,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            # Two towers of 64-64 with linear outputs.
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=64,
                learning_rate=1e-3,
                schedule=dict(env_steps=40960, lr_end=1e-4),
            ),
            # 32 steps of each env.
            collect=dict(n_sample=256, gae_lambda=0.9),
            # 4 minibatches, 10 epochs: every 512 env steps.
            eval=dict(evaluator=dict(eval_freq=80)),
        ),
        reward_model=dict(
            type="trex",
            # Episodes of checkpoints of 24 to 186, which ding_like.entry.ranked_data.collect_ranked writes.
            data_path="cartpole_ranked.safetensors",
            pretrain_updates=200,
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
