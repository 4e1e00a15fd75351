"""Three agents cover three landmarks (MPE simple_spread) with MATD3; needs `pip install "ding-like[mpe]"`.

Actions are continuous. All agents are paid the same (`local_ratio` 0), and the return is the sum over agents.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="simple_spread_matd3_seed0",
        env=dict(
            env_id="mpe2.simple_spread_v3",
            kwargs=dict(N=3, max_cycles=25, local_ratio=0.0, continuous_actions=True),
            collector_env_num=8,
            evaluator_env_num=8,
            n_evaluator_episode=40,
        ),
        policy=dict(
            cuda=False,
            random_collect_size=2000,
            discount_factor=0.95,
            model=dict(actor_hidden_size_list=[64, 64], critic_hidden_size_list=[64, 64]),
            learn=dict(
                # An update for every 16 env steps.
                update_per_collect=4,
                batch_size=256,
                learning_rate_actor=1e-3,
                learning_rate_critic=1e-3,
                target_theta=0.01,
            ),
            collect=dict(n_sample=64),
            eval=dict(evaluator=dict(eval_freq=2000)),
            other=dict(replay_buffer=dict(replay_buffer_size=200_000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="joint_petting_zoo"),
        env_manager=dict(type="base"),
        policy=dict(type="matd3"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=200_000)
