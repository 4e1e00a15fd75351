"""gym_hybrid's Moving-v0 with hybrid PPO."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="gym_hybrid_hppo_seed0",
        env=dict(
            env_id="Moving-v0",
            # Parameters from -1 to 1, whatever their units.
            act_scale=True,
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=50,
            stop_value=1.8,
        ),
        policy=dict(
            cuda=False,
            action_space="hybrid",
            # An episode may take 200 steps, and ends well or badly there.
            discount_factor=0.999,
            model=dict(
                action_shape=dict(action_type_shape=3, action_args_shape=2),
                encoder_hidden_size_list=[128, 128],
                sigma_type="independent",
                initial_sigma=0.6,
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=320,
                learning_rate=6e-4,
                entropy_weight=0.01,
                clip_ratio=0.2,
                value_norm=True,
                # Large steps find out how to brake, small ones learn to do it every time.
                schedule=dict(env_steps=1_000_000, lr_end=3e-5),
            ),
            collect=dict(n_sample=3200, gae_lambda=0.97),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gym_hybrid", import_names=["dizoo.gym_hybrid.envs.gym_hybrid_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="ppo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
