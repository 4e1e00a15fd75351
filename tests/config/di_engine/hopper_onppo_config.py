from easydict import EasyDict
from torch import nn

hopper_onppo_config = dict(
    exp_name="hopper_onppo_seed0",
    env=dict(
        collector_env_num=4,
        evaluator_env_num=4,
        n_evaluator_episode=4,
        env_id="Hopper-v3",
        norm_obs=dict(
            use_norm=False,
        ),
        norm_reward=dict(
            use_norm=False,
        ),
        stop_value=4000,
    ),
    policy=dict(
        cuda=True,
        recompute_adv=True,
        action_space="continuous",
        model=dict(
            encoder_hidden_size_list=[128, 128],
            action_space="continuous",
            actor_head_layer_num=0,
            critic_head_layer_num=0,
            obs_shape=11,
            action_shape=3,
            activation=nn.Tanh(),
        ),
        learn=dict(
            epoch_per_collect=10,
            batch_size=64,
            learning_rate=0.0003,
            value_weight=0.5,
            entropy_weight=0.0,
            clip_ratio=0.2,
            adv_norm=True,
            value_norm=True,
            lr_scheduler=dict(
                epoch_num=1000,
                min_lr_lambda=0.1,
            ),
            grad_clip_type="clip_norm",
            grad_clip_value=0.5,
        ),
        collect=dict(
            n_sample=512,
            unroll_len=1,
            discount_factor=0.99,
            gae_lambda=0.97,
        ),
        eval=dict(
            evaluator=dict(
                eval_freq=5000,
            ),
        ),
    ),
)
hopper_onppo_config = EasyDict(hopper_onppo_config)
main_config = hopper_onppo_config

hopper_onppo_create_config = dict(
    env=dict(
        type="mujoco",
        import_names=["dizoo.mujoco.envs.mujoco_env"],
    ),
    env_manager=dict(
        type="subprocess",
    ),
    policy=dict(
        type="ppo",
    ),
)
hopper_onppo_create_config = EasyDict(hopper_onppo_create_config)
create_config = hopper_onppo_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial_onpolicy -c hopper_onppo_config.py -s 0`
    from ding.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
