"""Hopper with TD3+BC from data of level medium, in DI-engine's form."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="hopper_medium_td3_bc_seed0",
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
            ),
            learn=dict(
                train_epoch=30000,
                batch_size=256,
                learning_rate_actor=3e-4,
                learning_rate_critic=3e-4,
                actor_update_freq=2,
                noise=True,
                noise_sigma=0.2,
                noise_range=dict(min=-0.5, max=0.5),
                alpha=2.5,
            ),
            collect=dict(
                unroll_len=1,
                data_type="d4rl",
                data_path=None,
            ),
            eval=dict(evaluator=dict(eval_freq=10000)),
            other=dict(replay_buffer=dict(replay_buffer_size=2000000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="d4rl", import_names=["dizoo.d4rl.envs.d4rl_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="td3_bc", import_names=["ding.policy.td3_bc"]),
        replay_buffer=dict(type="naive"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
