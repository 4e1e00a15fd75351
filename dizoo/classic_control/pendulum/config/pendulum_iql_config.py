"""Pendulum-v1 with IQL, from a data set of `ding collect`."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_iql_seed0",
        env=dict(
            env_id="Pendulum-v1",
            evaluator_env_num=10,
            n_evaluator_episode=10,
        ),
        policy=dict(
            cuda=False,
            # The whole swing lies within some 30 steps.
            discount_factor=0.97,
            model=dict(actor_head_hidden_size=64, critic_head_hidden_size=64),
            learn=dict(
                train_epoch=100,
                batch_size=128,
                learning_rate_q=1e-3,
                learning_rate_value=1e-3,
                learning_rate_policy=1e-3,
                target_theta=0.01,
                tau=0.7,
                # Advantages are of the size of rewards, which are large here.
                beta=0.3,
            ),
            # Written by `ding collect` of a run of yours, of pendulum_sac_config.py say.
            collect=dict(data_path="data/pendulum/medium.safetensors"),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="iql"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
