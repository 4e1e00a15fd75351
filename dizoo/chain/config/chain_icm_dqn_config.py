"""A chain of 30 states with DQN and an intrinsic curiosity module: the far end, a return of 1."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="chain_icm_dqn_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=1,
            n_evaluator_episode=1,
            n_states=30,
            stop_value=0.99,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.95,
            nstep=1,
            model=dict(encoder_hidden_size_list=[128], dueling=False, head_layer_num=0),
            learn=dict(
                update_per_collect=4,
                batch_size=128,
                learning_rate=1e-3,
                target_update_freq=25,
                loss="huber",
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=250)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.1, decay=2000),
                replay_buffer=dict(replay_buffer_size=20_000),
            ),
        ),
        reward_model=dict(
            intrinsic_reward_weight=1.0,
            hidden_size_list=[64, 64],
            update_per_collect=1,
            batch_size=128,
            learning_rate=5e-4,
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="chain", import_names=["dizoo.chain.envs.chain_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="dqn"),
        reward_model=dict(type="icm"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
