from easydict import EasyDict

n_agent = 3
n_landmark = n_agent
ptz_simple_spread_maddpg_config = dict(
    exp_name="ptz_simple_spread_maddpg_seed0",
    env=dict(
        env_family="mpe",
        env_id="simple_spread_v2",
        n_agent=n_agent,
        n_landmark=n_landmark,
        max_cycles=25,
        agent_obs_only=False,
        continuous_actions=True,
        act_scale=True,
        collector_env_num=8,
        evaluator_env_num=8,
        n_evaluator_episode=8,
        stop_value=0,
    ),
    policy=dict(
        cuda=False,
        multi_agent=True,
        random_collect_size=0,
        model=dict(
            agent_obs_shape=2 + 2 + n_landmark * 2 + (n_agent - 1) * 2 + (n_agent - 1) * 2,
            global_obs_shape=n_agent * 4 + n_landmark * 2 + n_agent * (n_agent - 1) * 2,
            action_shape=5,
            action_space="regression",
            actor_head_hidden_size=64,
            critic_head_hidden_size=64,
        ),
        learn=dict(
            update_per_collect=50,
            batch_size=320,
            learning_rate_actor=0.0005,
            learning_rate_critic=0.001,
            target_theta=0.005,
            discount_factor=0.99,
        ),
        collect=dict(n_sample=1600, noise_sigma=0.1, env_num=8),
        eval=dict(env_num=8, evaluator=dict(eval_freq=50)),
        other=dict(replay_buffer=dict(replay_buffer_size=100000)),
    ),
)
main_config = EasyDict(ptz_simple_spread_maddpg_config)
ptz_simple_spread_maddpg_create_config = dict(
    env=dict(
        type="petting_zoo",
        import_names=["dizoo.petting_zoo.envs.petting_zoo_simple_spread_env"],
    ),
    env_manager=dict(type="base"),
    policy=dict(type="ddpg"),
    replay_buffer=dict(type="naive"),
)
create_config = EasyDict(ptz_simple_spread_maddpg_create_config)

if __name__ == "__main__":
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
