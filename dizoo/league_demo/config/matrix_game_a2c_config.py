"""A matrix game by self-play: one policy plays both sides and comes close to the mixed equilibrium."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="matrix_game_a2c_seed0",
        env=dict(collector_env_num=64, evaluator_env_num=8, n_evaluator_episode=200),
        policy=dict(
            cuda=False,
            discount_factor=1.0,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[16],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
            ),
            # Without entropy the mixture circles around the equilibrium; 0.1 moves it by 0.02. Small steps, as what an
            # action is worth is seen through much noise.
            learn=dict(learning_rate=6e-4, entropy_weight=0.1, schedule=dict(env_steps=3_000_000, lr_end=1e-5)),
            # 4 games of each env, both sides.
            collect=dict(n_sample=512),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="matrix_game", import_names=["dizoo.league_demo.matrix_game"]),
        env_manager=dict(type="game"),
        policy=dict(type="a2c"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=3_000_000)
