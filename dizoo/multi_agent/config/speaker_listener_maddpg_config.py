"""A speaker names a landmark to a listener (MPE) with MADDPG; it needs `pip install "ding-like[mpe]"`.

The two see and do different things: the speaker says one of three words, and the listener moves in one of five ways.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="speaker_listener_maddpg_seed0",
        env=dict(
            env_id="mpe2.simple_speaker_listener_v4",
            kwargs=dict(max_cycles=25, continuous_actions=False),
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
        policy=dict(type="maddpg"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=200_000)
