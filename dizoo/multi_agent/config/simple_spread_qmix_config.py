"""Three agents cover three landmarks (MPE simple_spread) with QMIX; needs `pip install "ding-like[mpe]"`."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="simple_spread_qmix_seed0",
        env=dict(
            env_id="mpe2.simple_spread_v3",
            kwargs=dict(N=3, max_cycles=25, local_ratio=0.0),
            collector_env_num=8,
            evaluator_env_num=8,
            n_evaluator_episode=40,
        ),
        policy=dict(
            cuda=False,
            random_collect_size=2000,
            # All rewards are negative, so that unvisited states look best: values that look far ahead run away.
            discount_factor=0.9,
            model=dict(hidden_size_list=[128, 128]),
            learn=dict(update_per_collect=4, batch_size=128, learning_rate=5e-4, target_theta=0.005),
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
        env=dict(type="joint_petting_zoo"),
        env_manager=dict(type="base"),
        policy=dict(type="qmix"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=40_000)
