"""PPO on CountingEnv, with workers that keep ledgers: each batch must be of the newest weights."""

main_config = dict(
    exp_name="run",
    env=dict(
        collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9, kwargs=dict(step_s=0.003),
    ),
    policy=dict(
        model=dict(encoder_hidden_size_list=[32, 32]),
        learn=dict(epoch_per_collect=2, batch_size=64, learning_rate=1e-4),
        collect=dict(n_sample=128),
        eval=dict(evaluator=dict(eval_freq=100_000_000)),
    ),
    resume=dict(save_every_s=2.0),
)  # fmt: skip
create_config = dict(
    env=dict(type="tests.chaos.counting_env:CountingEnv"),
    env_manager=dict(type="base"),
    policy=dict(type="ppo"),
    comm_collector=dict(type="ledger", import_names=["tests.chaos.ledger"]),
    comm_learner=dict(type="ledger", import_names=["tests.chaos.ledger"]),
)
system_config = dict(num_collectors=2, path_data="data", path_policy="policy")
