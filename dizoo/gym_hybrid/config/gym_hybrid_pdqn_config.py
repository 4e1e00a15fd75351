"""gym_hybrid's Moving-v0 with PDQN."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="gym_hybrid_pdqn_seed0",
        env=dict(
            env_id="Moving-v0",
            # Parameters from -1 to 1, whatever their units.
            act_scale=True,
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=50,
            stop_value=1.8,
        ),
        policy=dict(
            cuda=False,
            # An episode may take 200 steps, and ends well or badly there.
            discount_factor=0.995,
            nstep=3,
            random_collect_size=2000,
            model=dict(
                action_shape=dict(action_type_shape=3, action_args_shape=2),
                encoder_hidden_size_list=[64, 64],
                dueling=False,
                head_layer_num=0,
                multi_pass=False,
            ),
            learn=dict(
                # An update for every 4 env steps.
                update_per_collect=8,
                batch_size=128,
                learning_rate_dis=1e-3,
                learning_rate_cont=3e-4,
                target_theta=0.01,
            ),
            collect=dict(n_sample=32, noise=True, noise_sigma=0.1),
            eval=dict(evaluator=dict(eval_freq=2500)),
            other=dict(
                eps=dict(type="exp", start=1.0, end=0.05, decay=20000),
                replay_buffer=dict(replay_buffer_size=100000),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gym_hybrid", import_names=["dizoo.gym_hybrid.envs.gym_hybrid_env"]),
        env_manager=dict(type="base"),
        policy=dict(type="pdqn"),
    )
)

if __name__ == "__main__":
    from ding_like.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0)
