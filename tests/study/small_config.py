"""A run of a second or two, for studies."""

main_config = dict(
    exp_name="small",
    env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
    policy=dict(
        random_collect_size=40,
        model=dict(encoder_hidden_size_list=[16, 16]),
        learn=dict(update_per_collect=1, batch_size=16),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=20)),
    ),
    resume=dict(save_every_env_steps=200),
)
create_config = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
