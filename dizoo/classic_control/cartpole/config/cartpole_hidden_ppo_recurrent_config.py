"""CartPole-v1 without velocities, with recurrent PPO: solved after about 20,000 env steps."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_hidden_ppo_recurrent_seed0",
        env=dict(
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=495,
            # Positions of cart and pole, not their velocities.
            wrappers=[dict(type="obs_select", indices=[0, 2]), dict(type="obs_norm")],
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.98,
            model=dict(
                encoder_hidden_size_list=[64],
                cell_type="gru",
                hidden_size=64,
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=256,
                seq_len=32,
                # Actor and critic share the memory: gradients of about one size.
                value_norm=True,
                learning_rate=1e-3,
                schedule=dict(env_steps=100000, lr_end=1e-4),
            ),
            # 128 steps of each env.
            collect=dict(n_sample=1024, gae_lambda=0.95),
            # 4 minibatches, 10 epochs: every 4096 env steps.
            eval=dict(evaluator=dict(eval_freq=160)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type="cartpole",
            import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"],
        ),
        env_manager=dict(type="base"),
        policy=dict(type="ppo_recurrent"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main_config, create_config), seed=0)
