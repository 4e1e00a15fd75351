"""Two poles side by side, in a league: half of the games against itself, half against snapshots of it."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_pair_ppo_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=8,
            n_evaluator_episode=64,
            # Games won less games lost, against a random player.
            stop_value=0.99,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(epoch_per_collect=5, batch_size=128, learning_rate=1e-3),
            collect=dict(n_sample=1024, gae_lambda=0.95),
            eval=dict(evaluator=dict(eval_freq=80)),
            other=dict(league=dict(games_per_job=32, naive_sp_player=dict(one_phase_step=400))),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="cartpole_pair", import_names=["dizoo.league_demo.cartpole_pair"]),
        env_manager=dict(type="game"),
        policy=dict(type="ppo"),
        league=dict(type="one_vs_one"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=100_000)
