from easydict import EasyDict

lunarlander_ppo_config = dict(
    exp_name="lunarlander_ppo_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=8,
        n_evaluator_episode=8,
        env_id="LunarLander-v2",
        stop_value=200,
    ),
    policy=dict(
        recompute_adv=True,
        action_space="discrete",
        cuda=True,
        model=dict(
            obs_shape=8,
            action_shape=4,
            action_space="discrete",
        ),
        learn=dict(
            epoch_per_collect=10,
            update_per_collect=1,
            batch_size=64,
            learning_rate=0.0003,
            value_weight=0.5,
            entropy_weight=0.01,
            clip_ratio=0.2,
            nstep_return=False,
            adv_norm=True,
            value_norm=True,
        ),
        collect=dict(
            n_sample=512,
            collector=dict(
                collect_print_freq=1000,
            ),
            unroll_len=1,
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
    ),
)
lunarlander_ppo_config = EasyDict(lunarlander_ppo_config)
main_config = lunarlander_ppo_config

lunarlander_ppo_create_config = dict(
    env=dict(
        type="lunarlander",
        import_names=["dizoo.box2d.lunarlander.envs.lunarlander_env"],
    ),
    env_manager=dict(
        type="subprocess",
    ),
    policy=dict(
        type="ppo",
    ),
)
lunarlander_ppo_create_config = EasyDict(lunarlander_ppo_create_config)
create_config = lunarlander_ppo_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial_onpolicy -c lunarlander_ppo_config.py -s 0`
    from ding.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
