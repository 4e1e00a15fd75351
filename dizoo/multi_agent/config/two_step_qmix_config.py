"""The two-step game with QMIX: both agents find the return of 8, where valuing each by itself finds 7."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="two_step_qmix_seed0",
        env=dict(collector_env_num=8, evaluator_env_num=4, n_evaluator_episode=8, stop_value=8.0),
        policy=dict(
            cuda=False,
            random_collect_size=256,
            discount_factor=0.99,
            model=dict(hidden_size_list=[64], mixer_embed_size=8),
            learn=dict(update_per_collect=4, batch_size=64, learning_rate=5e-4, target_update_freq=100),
            collect=dict(n_sample=16),
            eval=dict(evaluator=dict(eval_freq=500)),
            # As in the paper: everything is tried, always.
            other=dict(
                eps=dict(type="linear", start=1.0, end=1.0, decay=1), replay_buffer=dict(replay_buffer_size=5000)
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="two_step_game", import_names=["dizoo.multi_agent.two_step_game"]),
        env_manager=dict(type="base"),
        policy=dict(type="qmix"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=40_000)
