"""CartPole-v1 with AIRL and PPO, which imitate an expert and see no rewards of the env."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_airl_ppo_seed0",
        env=dict(
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
        # Rewards of a model that tells the expert's transitions from the policy's; the env's are not learned from.
        reward_model=dict(
            # 10 episodes of an expert: `ding -m serial_gail` trains it and writes them where there are none.
            data_path="cartpole_expert.safetensors",
            hidden_size_list=[64, 64],
            # 10 steps per 256 env steps.
            update_per_collect=10,
            batch_size=64,
            learning_rate=1e-3,
            # That of the policy.
            discount_factor=0.98,
            # Episodes end by failure, which rewards below 0 would make worth while.
            positive_reward=True,
        ),
        expert=dict(config="cartpole_dqn"),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="cartpole",
            import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
        reward_model=dict(type="airl"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_gail

    serial_pipeline_gail((main_config, create_config), seed=0)
