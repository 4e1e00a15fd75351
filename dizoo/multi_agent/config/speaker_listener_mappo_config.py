"""A speaker names a landmark to a listener (MPE simple_speaker_listener) with MAPPO.

It needs `pip install "ding-like[mpe]"`. The two see and do different things: what one has less of is padded and masked.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="speaker_listener_mappo_seed0",
        env=dict(
            env_id="mpe2.simple_speaker_listener_v4",
            # Both are paid alike; the return is the sum of what they are paid.
            kwargs=dict(max_cycles=25, continuous_actions=False),
            collector_env_num=16,
            evaluator_env_num=8,
            n_evaluator_episode=40,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            model=dict(
                encoder_hidden_size_list=[64, 64], actor_head_layer_num=0, critic_head_layer_num=0, activation="tanh"
            ),
            # 4 minibatches of 800 agents' rows in each of 10 epochs.
            learn=dict(epoch_per_collect=10, batch_size=800, learning_rate=7e-4, entropy_weight=0.01),
            # 4 episodes of each env.
            collect=dict(n_sample=1600, gae_lambda=0.95),
            eval=dict(evaluator=dict(eval_freq=1200)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="joint_petting_zoo"),
        env_manager=dict(type="base"),
        policy=dict(type="mappo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=200_000)
