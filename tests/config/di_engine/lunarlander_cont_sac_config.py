from easydict import EasyDict

lunarlander_cont_sac_config = dict(
    exp_name="lunarlander_cont_sac_seed0",
    env=dict(
        collector_env_num=4,
        evaluator_env_num=8,
        n_evaluator_episode=8,
        env_id="LunarLanderContinuous-v2",
        act_scale=True,
        stop_value=200,
    ),
    policy=dict(
        cuda=False,
        random_collect_size=1000,
        model=dict(
            obs_shape=8,
            action_shape=2,
            twin_critic=True,
            action_space="reparameterization",
            actor_head_hidden_size=128,
            critic_head_hidden_size=128,
        ),
        learn=dict(
            update_per_collect=10,
            batch_size=128,
            learning_rate_q=0.001,
            learning_rate_policy=0.0003,
            learning_rate_alpha=0.0003,
            auto_alpha=True,
        ),
        collect=dict(
            n_sample=256,
        ),
        eval=dict(
            evaluator=dict(
                eval_freq=1000,
            ),
        ),
        other=dict(
            replay_buffer=dict(
                replay_buffer_size=100000,
            ),
        ),
    ),
)
lunarlander_cont_sac_config = EasyDict(lunarlander_cont_sac_config)
main_config = lunarlander_cont_sac_config

lunarlander_cont_sac_create_config = dict(
    env=dict(
        type="lunarlander",
        import_names=["dizoo.box2d.lunarlander.envs.lunarlander_env"],
    ),
    env_manager=dict(
        type="base",
    ),
    policy=dict(
        type="sac",
    ),
)
lunarlander_cont_sac_create_config = EasyDict(lunarlander_cont_sac_create_config)
create_config = lunarlander_cont_sac_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial -c lunarlander_cont_sac_config.py -s 0`
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
