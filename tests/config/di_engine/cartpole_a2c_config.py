from easydict import EasyDict

cartpole_a2c_config = dict(
    exp_name="cartpole_a2c_seed0",
    env=dict(
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=5,
        stop_value=195,
    ),
    policy=dict(
        cuda=False,
        priority=False,
        model=dict(
            obs_shape=4,
            action_shape=2,
            encoder_hidden_size_list=[128, 128, 64],
        ),
        learn=dict(
            batch_size=40,
            learning_rate=0.001,
            value_weight=0.5,
            entropy_weight=0.01,
            adv_norm=False,
            grad_norm=0.5,
            betas=(
                0.9,
                0.999,
            ),
            eps=1e-08,
            ignore_done=False,
        ),
        collect=dict(
            n_sample=80,
            unroll_len=1,
            discount_factor=0.9,
            gae_lambda=0.95,
        ),
        eval=dict(
            evaluator=dict(
                eval_freq=50,
            ),
        ),
    ),
)
cartpole_a2c_config = EasyDict(cartpole_a2c_config)
main_config = cartpole_a2c_config

cartpole_a2c_create_config = dict(
    env=dict(
        type="cartpole",
        import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"],
    ),
    env_manager=dict(
        type="base",
    ),
    policy=dict(
        type="a2c",
    ),
)
cartpole_a2c_create_config = EasyDict(cartpole_a2c_create_config)
create_config = cartpole_a2c_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial_onpolicy -c cartpole_a2c_config.py -s 0`
    from ding.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
