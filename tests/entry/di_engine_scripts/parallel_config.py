"""Compile a parallel config by hand, as DI-engine's scripts for several machines do."""

from ding.config import compile_config_parallel
from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="cartpole_parallel",
        env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2),
        policy=dict(model=dict(obs_shape=4, action_shape=2), collect=dict(n_sample=8)),
    )
)
create_config = EasyDict(dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn")))
system_config = EasyDict(dict(coordinator=dict(), path_data="./data", path_policy="./policy", collector0=dict()))


def main(seed=0):
    return compile_config_parallel(
        main_config,
        create_cfg=create_config,
        system_cfg=system_config,
        seed=seed,
        coordinator_host="127.0.0.1",
        coordinator_port=50515,
    )
