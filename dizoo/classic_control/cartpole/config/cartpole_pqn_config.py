"""CartPole-v1 with PQN: Q-learning from the rows that were just made."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_pqn_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            model=dict(encoder_hidden_size_list=[128, 128], dueling=False),
            learn=dict(
                epoch_per_collect=4,
                batch_size=64,
                learning_rate=1e-3,
                schedule=dict(env_steps=100000, lr_end=1e-4),
            ),
            # 32 steps of each env.
            collect=dict(n_sample=256, q_lambda=0.9),
            eval=dict(evaluator=dict(eval_freq=160)),
            other=dict(eps=dict(type="linear", start=1.0, end=0.05, decay=20000)),
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
        policy=dict(type="pqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
