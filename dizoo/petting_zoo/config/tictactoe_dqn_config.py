"""Tic-tac-toe by self-play: one policy plays both sides, and is judged by games against a random player."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="tictactoe_dqn_seed0",
        env=dict(
            env_id="classic/tictactoe-v3",
            flatten=True,
            collector_env_num=8,
            evaluator_env_num=8,
            n_evaluator_episode=400,
            # Wins less losses; the best answer to a random player gets 0.96.
            stop_value=0.95,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.95,
            random_collect_size=2000,
            model=dict(encoder_hidden_size_list=[256, 256]),
            learn=dict(update_per_collect=8, batch_size=128, learning_rate=3e-4, target_update_freq=500),
            collect=dict(n_sample=32),
            eval=dict(evaluator=dict(eval_freq=2000)),
            other=dict(
                # Both sides go on to err, so that what to make of an opponent's errors is learned too.
                eps=dict(type="linear", start=1.0, end=0.6, decay=30_000),
                replay_buffer=dict(replay_buffer_size=100_000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="petting_zoo"),
        env_manager=dict(type="game"),
        policy=dict(type="dqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=200_000)
