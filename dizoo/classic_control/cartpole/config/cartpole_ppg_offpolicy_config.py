"""CartPole-v1 with PPG on rows from a replay buffer: solved after about 20,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_ppg_offpolicy_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=495,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            # Actor and critic of 64-64 with linear outputs, and an auxiliary value on the actor's encoder.
            model=dict(
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            # 8 updates per 128 env steps, on rows of the last 1,000 or so.
            learn=dict(
                update_per_collect=8,
                batch_size=64,
                learning_rate=1e-3,
                value_weight=0.5,
                entropy_weight=0.0,
                clip_ratio=0.2,
                # An auxiliary phase after every 128 updates, 2,048 env steps.
                aux_freq=128,
                aux_train_epoch=3,
                aux_bc_weight=1.0,
            ),
            collect=dict(n_sample=128, gae_lambda=0.9),
            eval=dict(evaluator=dict(eval_freq=64)),
            other=dict(replay_buffer=dict(replay_buffer_size=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="cartpole",
            import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="ppg_offpolicy"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
