"""A run of workers in which nothing is learned and everything is counted: rows in observations, batches in gradients.

A row has 64 to a batch, so that gradients are exact in float32.
"""

main_config = dict(
    exp_name="run",
    env=dict(
        collector_env_num=4, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9, kwargs=dict(step_s=0.002),
    ),
    policy=dict(
        random_collect_size=64,
        model=dict(encoder_hidden_size_list=[32, 32]),
        learn=dict(update_per_collect=4, batch_size=64, learning_rate=1e-4),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=100_000_000)),
        other=dict(replay_buffer=dict(replay_buffer_size=2_000_000)),
    ),
)  # fmt: skip
create_config = dict(
    env=dict(type="tests.chaos.counting_env:CountingEnv"),
    env_manager=dict(type="base"),
    policy=dict(type="counting", import_names=["tests.chaos.counting_policy"]),
)
system_config = dict()
