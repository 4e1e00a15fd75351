"""CartPole-v1 with REINFORCE and a baseline: solved after about 25,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_pg_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=495,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            # A policy and a baseline of 64-64 with linear outputs.
            model=dict(encoder_hidden_size_list=[64, 64], head_layer_num=0, activation="tanh"),
            learn=dict(
                batch_size=256,
                learning_rate=2e-3,
                entropy_weight=0.0,
                adv_norm=True,
            ),
            # A whole episode of each env; each row is learned from once.
            collect=dict(n_episode=8, collector=dict(get_train_sample=True)),
            eval=dict(evaluator=dict(eval_freq=32)),
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
        policy=dict(type="pg"),
        collector=dict(type="episode"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
