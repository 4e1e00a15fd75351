"""The two-step game with COMA. Its agents learn from what they do, and most settle for the safe return of 7."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="two_step_coma_seed0",
        env=dict(collector_env_num=8, evaluator_env_num=1, n_evaluator_episode=4, stop_value=8.0),
        policy=dict(
            cuda=False,
            model=dict(hidden_size_list=[64]),
            learn=dict(batch_size=32, learning_rate=1e-3, entropy_weight=0.1),
            collect=dict(n_sample=64),
            eval=dict(evaluator=dict(eval_freq=100)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="two_step_game", import_names=["dizoo.multi_agent.two_step_game"]),
        env_manager=dict(type="base"),
        policy=dict(type="coma"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=20_000)
