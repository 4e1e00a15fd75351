"""Hopper with BC from data of level medium, in DI-engine's form."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="hopper_medium_bc_seed0",
        env=dict(
            env_id="hopper-medium-v0",
            norm_obs=dict(use_norm=True, offline_stats=dict(use_offline_stats=True)),
            norm_reward=dict(use_norm=False),
            collector_env_num=1,
            evaluator_env_num=8,
            use_act_scale=True,
            n_evaluator_episode=8,
            stop_value=6000,
        ),
        policy=dict(
            cuda=True,
            model=dict(
                obs_shape=11,
                action_shape=3,
                action_space="regression",
                actor_head_hidden_size=256,
                actor_head_layer_num=1,
            ),
            continuous=True,
            loss_type="mse_loss",
            learn=dict(
                data_path=None,
                train_epoch=1000,
                batch_size=256,
                learning_rate=1e-3,
            ),
            collect=dict(data_type="d4rl", unroll_len=1),
            eval=dict(evaluator=dict(eval_freq=500)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="d4rl", import_names=["dizoo.d4rl.envs.d4rl_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="bc", import_names=["ding.policy.bc"]),
        replay_buffer=dict(type="naive"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
