"""The two-step game of Rashid et al. 2018 (QMIX) with discrete MASAC, whose best return, 8, needs agents to agree."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="two_step_masac_discrete_seed0",
        env=dict(collector_env_num=4, evaluator_env_num=4, n_evaluator_episode=8, stop_value=8),
        policy=dict(
            cuda=False,
            random_collect_size=200,
            discount_factor=0.99,
            model=dict(actor_hidden_size_list=[32, 32], critic_hidden_size_list=[32, 32]),
            learn=dict(
                update_per_collect=8,
                batch_size=64,
                learning_rate=1e-3,
                # Nearly a choice: 0.1 of at most log 2.
                target_entropy=0.1,
            ),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=200)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="two_step_game", import_names=["dizoo.multi_agent.two_step_game"]),
        env_manager=dict(type="base"),
        policy=dict(type="masac_discrete"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=4_000)
