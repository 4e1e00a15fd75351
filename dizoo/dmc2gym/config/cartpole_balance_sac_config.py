"""Cartpole balance of the DeepMind Control Suite with SAC; it needs the extra `dmc`."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_balance_sac_seed0",
        env=dict(
            domain_name="cartpole",
            task_name="balance",
            # 125 actions an episode.
            frame_skip=8,
            from_pixels=False,
            collector_env_num=4,
            evaluator_env_num=8,
            n_evaluator_episode=8,
            # Of at most 1,000.
            stop_value=980,
        ),
        policy=dict(
            cuda=False,
            # The first rows are made at random.
            random_collect_size=1000,
            model=dict(actor_head_hidden_size=128, critic_head_hidden_size=128),
            learn=dict(
                # An update for each env step.
                update_per_collect=4,
                batch_size=128,
                learning_rate_q=1e-3,
                learning_rate_policy=1e-3,
                learning_rate_alpha=3e-4,
            ),
            collect=dict(n_sample=4),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(replay_buffer=dict(replay_buffer_size=100000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="dmc2gym", import_names=["dizoo.dmc2gym.envs.dmc2gym_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="sac"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
