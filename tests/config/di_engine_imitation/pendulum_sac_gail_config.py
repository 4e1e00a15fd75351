from easydict import EasyDict

main_config = dict(
    exp_name="pendulum_sac_gail_seed0",
    env=dict(
        collector_env_num=10,
        evaluator_env_num=5,
        act_scale=True,
        n_evaluator_episode=5,
        stop_value=-250,
    ),
    reward_model=dict(
        type="gail",
        input_size=4,
        hidden_size=128,
        batch_size=64,
        learning_rate=0.001,
        update_per_collect=100,
        collect_count=1000,
        # Users put the path of their expert here.
        expert_model_path="model_path_placeholder",
        data_path="data_path_placeholder",
    ),
    policy=dict(
        cuda=False,
        priority=False,
        random_collect_size=1000,
        model=dict(
            obs_shape=3,
            action_shape=1,
            twin_critic=True,
            action_space="reparameterization",
            actor_head_hidden_size=128,
            critic_head_hidden_size=128,
        ),
        learn=dict(
            update_per_collect=1,
            batch_size=128,
            learning_rate_q=0.001,
            learning_rate_policy=0.001,
            learning_rate_alpha=0.0003,
            ignore_done=True,
            target_theta=0.005,
            discount_factor=0.99,
            auto_alpha=True,
        ),
        collect=dict(n_sample=10, model_path="model_path_placeholder"),
        eval=dict(evaluator=dict(eval_freq=100)),
        other=dict(replay_buffer=dict(replay_buffer_size=100000)),
    ),
)
main_config = EasyDict(main_config)

create_config = dict(
    env=dict(type="pendulum", import_names=["dizoo.classic_control.pendulum.envs.pendulum_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="sac"),
    reward_model=dict(type="gail"),
)
create_config = EasyDict(create_config)

if __name__ == "__main__":
    from ding.entry import serial_pipeline_gail

    from dizoo.classic_control.pendulum.config import pendulum_sac_config, pendulum_sac_create_config

    expert = (pendulum_sac_config, pendulum_sac_create_config)
    serial_pipeline_gail((main_config, create_config), expert, seed=0)
