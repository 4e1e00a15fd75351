"""The matrix game of Son et al. 2019 with weighted QMIX: both agents find the payoff of 8, where QMIX settles for 0."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="team_matrix_game_wqmix_seed0",
        env=dict(game="nonmonotonic", collector_env_num=8, evaluator_env_num=1, n_evaluator_episode=1, stop_value=8.0),
        policy=dict(
            cuda=False,
            random_collect_size=256,
            model=dict(hidden_size_list=[64]),
            learn=dict(update_per_collect=8, learning_rate=1e-3, weighting="optimistically", alpha=0.1),
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
        env=dict(type="team_matrix_game", import_names=["dizoo.multi_agent.team_matrix_game"]),
        env_manager=dict(type="base"),
        policy=dict(type="wqmix"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=8_000)
