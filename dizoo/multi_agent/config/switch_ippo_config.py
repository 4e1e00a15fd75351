"""Two agents pass each other by a corridor for one, and leave as they arrive, with IPPO: the best return is 1.15."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="switch_ippo_seed0",
        env=dict(agents=2, collector_env_num=16, evaluator_env_num=1, n_evaluator_episode=4, stop_value=1.149),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
            ),
            learn=dict(epoch_per_collect=10, batch_size=256, learning_rate=7e-4, entropy_weight=0.02),
            collect=dict(n_sample=640, gae_lambda=0.95),
            eval=dict(evaluator=dict(eval_freq=500)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="switch_game", import_names=["dizoo.multi_agent.switch_game"]),
        env_manager=dict(type="base"),
        policy=dict(type="ippo"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=60_000)
