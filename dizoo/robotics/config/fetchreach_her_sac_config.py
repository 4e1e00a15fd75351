"""FetchReach-v4 with SAC and hindsight goals."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="fetchreach_her_sac_seed0",
        env=dict(
            env_id="FetchReach-v4",
            collector_env_num=4,
            evaluator_env_num=5,
            n_evaluator_episode=20,
            # Each of 50 steps away from the goal costs 1, and the way takes 2 or so: with one goal missed of 20 the
            # mean is below -4.
            stop_value=-3,
        ),
        policy=dict(
            cuda=False,
            # 1 / (1 - 0.95) = 20 steps are looked ahead: more than any way needs.
            discount_factor=0.95,
            random_collect_size=1000,
            model=dict(actor_head_hidden_size=64, critic_head_hidden_size=64),
            learn=dict(
                # 4 updates per 4 env steps.
                update_per_collect=4,
                batch_size=256,
                learning_rate=2e-3,
                target_theta=0.05,
            ),
            collect=dict(n_sample=4),
            eval=dict(evaluator=dict(eval_freq=1000)),
            other=dict(replay_buffer=dict(replay_buffer_size=100000, strategy="future", k=4)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="sac"),
        replay_buffer=dict(type="her"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
