"""Pendulum-v1 with BCQ: episodes of any policy, good ones and bad."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_bcq_seed0",
        env=dict(
            env_id="Pendulum-v1",
            evaluator_env_num=10,
            # Returns differ by 90 either way between starts.
            n_evaluator_episode=50,
            stop_value=-165,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.97,
            model=dict(actor_head_hidden_size=[64, 64], critic_head_hidden_size=[64, 64], vae_hidden_dims=[64, 64]),
            learn=dict(
                batch_size=128,
                train_epoch=80,
                target_theta=0.01,
                learning_rate_q=1e-3,
                learning_rate_policy=1e-3,
                learning_rate_vae=1e-3,
            ),
            # Written by `ding collect` of a run of yours.
            collect=dict(data_path="pendulum_expert.safetensors"),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="bcq"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
