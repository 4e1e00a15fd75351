"""What ding trains Point-v0 with."""

main_config = dict(
    exp_name="point",
    env=dict(
        env_id="point_env:Point-v0",
        collector_env_num=1,
        evaluator_env_num=5,
        n_evaluator_episode=20,
    ),
    policy=dict(
        discount_factor=0.95,
        nstep=1,
        random_collect_size=500,
        collect=dict(n_sample=4),
        learn=dict(learning_rate=1e-3, batch_size=64, update_per_collect=2, target_update_freq=100),
        eval=dict(evaluator=dict(eval_freq=500)),
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.05, decay=3200),
            replay_buffer=dict(replay_buffer_size=20000),
        ),
    ),
)
create_config = dict(
    env=dict(type="gymnasium"),
    policy=dict(type="soft_dqn", import_names=["soft_dqn"]),
)
