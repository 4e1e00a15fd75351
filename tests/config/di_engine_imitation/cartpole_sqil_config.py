from easydict import EasyDict

main_config = dict(
    exp_name="cartpole_sqil_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=5,
        stop_value=195,
    ),
    policy=dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        nstep=1,
        discount_factor=0.97,
        learn=dict(batch_size=64, learning_rate=0.001, update_per_collect=3, alpha=0.12),
        collect=dict(n_sample=8, unroll_len=1, model_path="model_path_placeholder"),
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
    policy=dict(type="sqil"),
)
create_config = EasyDict(create_config)

if __name__ == "__main__":
    from ding.entry import serial_pipeline_sqil

    from dizoo.classic_control.cartpole.config import cartpole_sql_config, cartpole_sql_create_config

    expert = (cartpole_sql_config, cartpole_sql_create_config)
    serial_pipeline_sqil((main_config, create_config), expert, seed=0)
