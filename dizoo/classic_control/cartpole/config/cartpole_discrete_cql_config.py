"""CartPole-v1 with discrete CQL: episodes of any policy, good ones and bad."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_discrete_cql_seed0",
        env=dict(
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=1,
            model=dict(encoder_hidden_size_list=[64, 64], head_layer_num=0, num_quantiles=32),
            learn=dict(
                batch_size=128,
                learning_rate=1e-3,
                target_update_freq=None,
                target_theta=0.01,
                train_epoch=80,
                min_q_weight=10.0,
            ),
            # Written by `ding collect` of a run of yours.
            collect=dict(data_path="cartpole_expert.safetensors"),
            eval=dict(evaluator=dict(eval_freq=500)),
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
        policy=dict(type="discrete_cql"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
