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
            n_evaluator_episode=200,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            random_collect_size=2000,
            model=dict(encoder_hidden_size_list=[128, 128]),
            learn=dict(update_per_collect=8, batch_size=128, learning_rate=5e-4, target_update_freq=500),
            collect=dict(n_sample=32),
            eval=dict(evaluator=dict(eval_freq=2000)),
            other=dict(
                # Both sides go on to err, so that positions which a perfect player never sees are learned too.
                eps=dict(type="linear", start=1.0, end=0.2, decay=30_000),
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

    serial_pipeline((main_config, create_config), seed=0, max_env_step=60_000)
