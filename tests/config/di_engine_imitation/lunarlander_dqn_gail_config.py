from easydict import EasyDict

main_config = dict(
    exp_name="lunarlander_dqn_gail_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=8,
        env_id="LunarLander-v2",
        n_evaluator_episode=8,
        stop_value=200,
    ),
    reward_model=dict(
        type="gail",
        input_size=9,
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
        model=dict(obs_shape=8, action_shape=4, encoder_hidden_size_list=[512, 64], dueling=True),
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
    env=dict(type="lunarlander", import_names=["dizoo.box2d.lunarlander.envs.lunarlander_env"]),
    env_manager=dict(type="subprocess"),
    policy=dict(type="dqn"),
    reward_model=dict(type="gail"),
)
create_config = EasyDict(create_config)

if __name__ == "__main__":
    from ding.entry import serial_pipeline_gail

    from dizoo.box2d.lunarlander.config import lunarlander_dqn_config, lunarlander_dqn_create_config

    expert = (lunarlander_dqn_config, lunarlander_dqn_create_config)
    serial_pipeline_gail((main_config, create_config), expert, seed=0)
