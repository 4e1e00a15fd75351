"""Three agents cover three landmarks with QMIX, under DI-engine's keys; it needs the extra `mpe`.

dizoo/multi_agent/config/simple_spread_qmix_config.py has the task under PettingZoo's names, with `local_ratio` 0.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="ptz_simple_spread_qmix_seed0",
        env=dict(
            env_family="mpe",
            env_id="simple_spread_v2",
            n_agent=3,
            n_landmark=3,
            max_cycles=25,
            collector_env_num=8,
            evaluator_env_num=8,
            n_evaluator_episode=40,
        ),
        policy=dict(
            cuda=False,
            random_collect_size=2000,
            # All rewards are negative, so that unvisited states look best: values that look far ahead run away.
            discount_factor=0.8,
            model=dict(hidden_size_list=[128, 128]),
            learn=dict(update_per_collect=16, batch_size=128, learning_rate=1e-3, target_theta=0.02),
            collect=dict(n_sample=64),
            eval=dict(evaluator=dict(eval_freq=2000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=40_000),
                replay_buffer=dict(replay_buffer_size=100_000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="petting_zoo", import_names=["dizoo.petting_zoo.envs.petting_zoo_simple_spread_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="qmix"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=40_000)
