"""CartPole-v1 with PPG: solved after about 10,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_ppg_seed0",
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
            learn=dict(
                epoch_per_collect=10,
                batch_size=64,
                learning_rate=1e-3,
                # An auxiliary phase after every 16 batches, 4,096 env steps.
                aux_freq=16,
                aux_train_epoch=3,
                aux_bc_weight=1.0,
                schedule=dict(env_steps=40960, lr_end=1e-4),
            ),
            # 32 steps of each env.
            collect=dict(n_sample=256, gae_lambda=0.9),
            eval=dict(evaluator=dict(eval_freq=80)),
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
        policy=dict(type="ppg"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
