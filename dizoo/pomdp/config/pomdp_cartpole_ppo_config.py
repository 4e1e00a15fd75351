"""CartPole-v1 with PPO through noise, lost numbers and frames that stand still, by what was seen in four steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pomdp_cartpole_ppo_seed0",
        env=dict(
            env_id="CartPole-v1",
            pomdp=dict(noise_scale=0.01, zero_p=0.2, reward_noise=0.01, duplicate_p=0.2),
            frame_stack=4,
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=400,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=128,
                learning_rate=1e-3,
                schedule=dict(env_steps=200_000, lr_end=1e-4),
            ),
            # 64 steps of each env.
            collect=dict(n_sample=512, gae_lambda=0.95),
            # 4 minibatches, 10 epochs: every 2,048 env steps.
            eval=dict(evaluator=dict(eval_freq=160)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="pomdp", import_names=["dizoo.pomdp.envs.atari_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
