"""CartPole-v1 with DQN from the reward that T-REX learns of ranked episodes; the env's is not read."""

from copy import deepcopy

from easydict import EasyDict

from dizoo.classic_control.cartpole.config.cartpole_ppo_config import create_config as expert_create_config
from dizoo.classic_control.cartpole.config.cartpole_ppo_config import main_config as expert_main_config

# The expert learns slowly, so that there are checkpoints between its first and its last one.
expert_main_config = deepcopy(expert_main_config)
expert_main_config.policy.learn.update(learning_rate=1e-4, schedule=dict(env_steps=40960, lr_end=1e-4))

main_config = EasyDict(
    dict(
        exp_name="cartpole_trex_dqn_seed0",
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
            discount_factor=0.99,
            nstep=1,
            # The first rows are made at random.
            random_collect_size=500,
            model=dict(encoder_hidden_size_list=[128, 128, 64], dueling=True),
            learn=dict(
                # 8 updates per 8 env steps.
                update_per_collect=8,
                batch_size=128,
                learning_rate=5e-4,
                target_update_freq=80,
                loss="huber",
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=500)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.02, decay=3000),
                replay_buffer=dict(replay_buffer_size=100000),
            ),
        ),
        reward_model=dict(
            type="trex",
            # Ranked episodes: `ding -m serial_trex` trains an expert, and its checkpoints play them.
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
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_preference_based_irl

    serial_pipeline_preference_based_irl((main_config, create_config), seed=0)
