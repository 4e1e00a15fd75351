"""Two agents pass each other by a corridor that takes one at a time, with VDN; the best return is 1.15."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="switch_vdn_seed0",
        env=dict(agents=2, collector_env_num=8, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1.149),
        policy=dict(
            cuda=False,
            random_collect_size=64,
            nstep=3,
            model=dict(hidden_size_list=[64]),
            learn=dict(update_per_collect=8, learning_rate=1e-3),
            collect=dict(n_sample=16),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=15_000),
                replay_buffer=dict(replay_buffer_size=5000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="switch_game", import_names=["dizoo.multi_agent.switch_game"]),
        env_manager=dict(type="base"),
        policy=dict(type="vdn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=30_000)
