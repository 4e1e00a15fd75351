"""Hopper with a decision transformer from data of level medium, in DI-engine's form."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="hopper_medium_dt_seed0",
        env=dict(
            env_id="hopper-medium-v0",
            norm_obs=dict(use_norm=False, offline_stats=dict(use_offline_stats=False)),
            norm_reward=dict(use_norm=False),
            collector_env_num=1,
            evaluator_env_num=8,
            use_act_scale=True,
            n_evaluator_episode=8,
            stop_value=3600,
        ),
        policy=dict(
            cuda=True,
            stop_value=3600,
            state_mean=None,
            state_std=None,
            evaluator_env_num=8,
            env_name="hopper-medium-v0",
            rtg_target=3600,
            rtg_scale=1000,
            max_eval_ep_len=1000,
            wt_decay=1e-4,
            warmup_steps=10000,
            context_len=20,
            weight_decay=0.1,
            clip_grad_norm_p=0.25,
            model=dict(
                state_dim=11,
                act_dim=3,
                n_blocks=3,
                h_dim=128,
                context_len=20,
                n_heads=1,
                drop_p=0.1,
                continuous=True,
            ),
            learn=dict(batch_size=64, learning_rate=1e-4, train_epoch=10),
            collect=dict(data_type="d4rl_trajectory", data_path=None, unroll_len=1),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="d4rl", import_names=["dizoo.d4rl.envs.d4rl_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="dt", import_names=["ding.policy.dt"]),
        replay_buffer=dict(type="naive"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_offline

    serial_pipeline_offline((main_config, create_config), seed=0)
