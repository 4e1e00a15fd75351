"""A chain of 25 states with Never Give Up: the far end, a return of 1."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="chain_ngu_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=1,
            n_evaluator_episode=1,
            n_states=25,
            stop_value=0.99,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.97,
            discount_factor_min=0.95,
            beta=0.3,
            burnin_step=0,
            # Whole episodes: the bonus is for what is new in a row.
            learn_unroll_len=34,
            model=dict(
                num_arms=4,
                encoder_hidden_size_list=[32],
                lstm_type="gru",
                lstm_hidden_size=32,
                res_link=True,
                dueling=False,
                head_layer_num=0,
            ),
            learn=dict(
                update_per_collect=64,
                batch_size=16,
                learning_rate=2e-3,
                exploit_share=0.5,
                value_rescale=False,
                loss="huber",
                target_update_freq=25,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=64)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.1, decay=2000),
                replay_buffer=dict(replay_buffer_size=2_000),
            ),
        ),
        reward_model=dict(
            hidden_size_list=[64, 32],
            kernel_epsilon=1e-2,
            update_per_collect=32,
            batch_size=128,
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="chain", import_names=["dizoo.chain.envs.chain_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="ngu"),
        reward_model=dict(type="ngu"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
