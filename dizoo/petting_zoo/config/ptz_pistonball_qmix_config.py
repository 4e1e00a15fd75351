"""Five pistons move a ball to the left with QMIX, under DI-engine's keys; it needs the extra `butterfly`. Not tuned."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="ptz_pistonball_qmix_seed0",
        env=dict(
            env_family="butterfly",
            env_id="pistonball_v6",
            n_pistons=5,
            max_cycles=125,
            collector_env_num=4,
            evaluator_env_num=4,
            n_evaluator_episode=8,
        ),
        policy=dict(
            cuda=False,
            random_collect_size=2000,
            discount_factor=0.95,
            model=dict(hidden_size_list=[128, 128]),
            learn=dict(update_per_collect=8, batch_size=64, learning_rate=5e-4, target_theta=0.01),
            collect=dict(n_sample=32),
            eval=dict(evaluator=dict(eval_freq=2000)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=40_000),
                replay_buffer=dict(replay_buffer_size=20_000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="petting_zoo_pistonball", import_names=["dizoo.petting_zoo.envs.petting_zoo_pistonball_env"]),
        env_manager=dict(type="subprocess"),
        policy=dict(type="qmix"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=100_000)
