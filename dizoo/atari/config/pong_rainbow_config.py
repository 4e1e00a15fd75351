"""Pong with Rainbow; it needs the extra `atari`.

With central inference (docs/seed.md), 8 actors that share one network:

ding -m seed -c pong_rainbow_config.py
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pong_rainbow_seed0",
        env=dict(
            env_id="ALE/Pong-v5",
            # The wrapper skips frames itself; actions are done as they are chosen.
            kwargs=dict(frameskip=1, repeat_action_probability=0.0),
            wrappers=[dict(type="atari")],
            # Of each actor thread.
            collector_env_num=1,
            evaluator_env_num=2,
            n_evaluator_episode=2,
            stop_value=20,
        ),
        policy=dict(
            cuda=False,
            priority=True,
            priority_IS_weight=True,
            discount_factor=0.99,
            nstep=3,
            random_collect_size=1600,
            # The network of Mnih et al. 2015 under the head of Hessel et al. 2018.
            model=dict(head_hidden_size=512, v_min=-10, v_max=10, n_atom=51),
            learn=dict(
                # 1 update per 8 env steps: half of what Hessel et al. 2018 take.
                update_per_collect=1,
                batch_size=32,
                learning_rate=1e-4,
                target_update_freq=1000,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=20000)),
            other=dict(
                # Noise alone explores.
                eps=dict(type="linear", start=0.0, end=0.0, decay=1),
                replay_buffer=dict(
                    type="advanced",
                    replay_buffer_size=100000,
                    # Each frame is kept once: 7 KB a row.
                    frame_stack=4,
                    alpha=0.5,
                    beta=0.4,
                    anneal_step=100000,
                ),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="rainbow"),
    )
)
system_config = EasyDict(
    dict(
        seed=dict(
            actor_processes=2,
            actor_threads=4,
            # 8 actors with 64 rows each under way, twice, would be 128 updates behind.
            segment_rows=16,
        )
    )
)

if __name__ == "__main__":
    from ding_like.entry import seed_pipeline

    seed_pipeline((main_config, create_config, system_config), seed=0)
