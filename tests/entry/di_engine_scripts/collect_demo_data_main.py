"""Train DQN on CartPole and save transitions of the trained policy, as DI-engine's guides of imitation learning do."""

from ding.entry import collect_demo_data, serial_pipeline
from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_demo",
        env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2),
        policy=dict(cuda=False, model=dict(obs_shape=4, action_shape=2), collect=dict(n_sample=8)),
    )
)
create_config = EasyDict(dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn")))


def main(expert_data_path, collect_count, max_env_step):
    serial_pipeline((main_config, create_config), seed=0, max_env_step=max_env_step)
    collect_demo_data(
        (main_config, create_config),
        seed=0,
        collect_count=collect_count,
        expert_data_path=expert_data_path,
        state_dict_path="cartpole_demo/ckpt/ckpt_best.pth.tar",
    )


if __name__ == "__main__":
    main("cartpole.data", 1000, 20000)
