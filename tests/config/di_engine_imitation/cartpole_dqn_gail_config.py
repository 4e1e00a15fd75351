from easydict import EasyDict

main_config = dict(
    exp_name="cartpole_dqn_gail_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=5,
        stop_value=195,
    ),
    reward_model=dict(
        type="gail",
        input_size=5,
        hidden_size=64,
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
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        nstep=1,
        discount_factor=0.97,
        learn=dict(batch_size=64, learning_rate=0.001, update_per_collect=3),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=40)),
        other=dict(
            eps=dict(type="exp", start=0.95, end=0.1, decay=10000), replay_buffer=dict(replay_buffer_size=20000)
        ),
    ),
)
main_config = EasyDict(main_config)

create_config = dict(
    env=dict(type="cartpole", import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
    reward_model=dict(type="gail"),
)
create_config = EasyDict(create_config)

if __name__ == "__main__":
    from ding.entry import serial_pipeline_gail

    from dizoo.classic_control.cartpole.config import cartpole_dqn_config, cartpole_dqn_create_config

    expert = (cartpole_dqn_config, cartpole_dqn_create_config)
    serial_pipeline_gail((main_config, create_config), expert, seed=0)
