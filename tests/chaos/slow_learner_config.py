"""A run whose updates take far longer than collecting their rows, which are large: who does not wait fills the memory.

A segment of 64 rows has 10 MB. The buffer is full after five of them.
"""

main_config = dict(
    exp_name="run",
    env=dict(
        collector_env_num=4, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9, kwargs=dict(step_s=0.001),
    ),
    policy=dict(
        random_collect_size=64,
        model=dict(encoder_hidden_size_list=[16, 16]),
        learn=dict(update_per_collect=4, batch_size=32, learning_rate=1e-4),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=100_000_000)),
        other=dict(replay_buffer=dict(replay_buffer_size=320)),
    ),
)  # fmt: skip
create_config = dict(
    env=dict(type="tests.chaos.counting_env:WideEnv"),
    env_manager=dict(type="base"),
    policy=dict(type="slow", import_names=["tests.chaos.counting_policy"]),
)
system_config = dict(seed=dict(actor_processes=2, inference_servers=1))
