"""Connect four in a league: half of the games against itself, half against what it was at first."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="connect_four_ppo_seed0",
        env=dict(
            env_id="classic/connect_four-v3",
            flatten=True,
            collector_env_num=16,
            evaluator_env_num=8,
            n_evaluator_episode=200,
            # Wins less losses against a random player.
            stop_value=0.96,
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            model=dict(
                share_encoder=False,
                encoder_hidden_size_list=[256, 256],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                epoch_per_collect=4,
                batch_size=512,
                learning_rate=1e-3,
                entropy_weight=0.02,
                schedule=dict(env_steps=500_000, lr_end=1e-4),
            ),
            collect=dict(n_sample=4096, gae_lambda=0.95),
            eval=dict(evaluator=dict(eval_freq=160)),
            # One snapshot, of the first weights, is all there is: later ones are much like itself.
            other=dict(league=dict(games_per_job=32, naive_sp_player=dict(one_phase_step=1_000_000))),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="petting_zoo"),
        env_manager=dict(type="game"),
        policy=dict(type="ppo"),
        league=dict(type="one_vs_one"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_env_step=500_000)
