"""CartPole-v1 with PPO from the reward that T-REX learns of ranked episodes; the env's is not read."""

from copy import deepcopy

from easydict import EasyDict

from dizoo.classic_control.cartpole.config.cartpole_ppo_config import create_config as expert_create_config
from dizoo.classic_control.cartpole.config.cartpole_ppo_config import main_config as expert_main_config

# The expert learns slowly, so that there are checkpoints between its first and its last one.
expert_main_config = deepcopy(expert_main_config)
expert_main_config.policy.learn.update(learning_rate=1e-4, schedule=dict(env_steps=40960, lr_end=1e-4))

main_config = EasyDict(
    dict(
        exp_name="cartpole_trex_ppo_seed0",
        env=dict(
            env_id="CartPole-v1",
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            # No evaluation ends the run: it would choose the policy by the env's rewards.
            stop_value=1e9,
        ),
        policy=dict(
            cuda=False,
            # Sums over whole episodes were ranked: a short horizon would prefer the best states to a long episode.
            discount_factor=0.9995,
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
                schedule=dict(env_steps=50000, lr_end=1e-5),
            ),
            # 128 steps of each env.
            collect=dict(n_sample=1024, gae_lambda=0.98),
            # 16 minibatches, 10 epochs: every 2048 env steps.
            eval=dict(evaluator=dict(eval_freq=320)),
        ),
        reward_model=dict(
            type="trex",
            # Ranked episodes: `ding -m serial_trex_onpolicy` trains an expert, and its checkpoints play them.
            data_path="cartpole_ranked.safetensors",
            pretrain_updates=200,
            learning_rate=1e-4,
            # The ranking decides whether to go on is good, which snippets of one length leave open.
            whole_episodes=True,
            centre=False,
        ),
        # It ends long before it could hold the pole.
        expert=dict(config=(expert_main_config, expert_create_config), stop_value=200, num_episodes=20),
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
    from ding_like.entry import serial_pipeline_preference_based_irl_onpolicy

    serial_pipeline_preference_based_irl_onpolicy((main_config, create_config), seed=0)
