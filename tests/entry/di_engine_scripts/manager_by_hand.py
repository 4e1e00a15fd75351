"""Step envs by hand, in subprocesses, and record them, in the form of DI-engine's guides."""

import gymnasium as gym
from ding.config import compile_config
from ding.envs import AsyncSubprocessEnvManager, DingEnvWrapper
from ding.policy import DQNPolicy, single_env_forward_wrapper
from ding.utils import EasyTimer
from easydict import EasyDict

main_config = EasyDict(
    exp_name="by_hand",
    env=dict(manager=dict(episode_num=2), collector_env_num=2, evaluator_env_num=2),
    policy=dict(model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8])),
)


def main(cfg, seed=0, replay_path="./video"):
    cfg = compile_config(cfg, AsyncSubprocessEnvManager, DQNPolicy, save_cfg=False)
    envs = AsyncSubprocessEnvManager(
        env_fn=[lambda: DingEnvWrapper(cfg=dict(env_id="CartPole-v1", env_wrapper="default")) for _ in range(2)],
        cfg=dict(AsyncSubprocessEnvManager.default_config(), episode_num=2),
    )
    policy = DQNPolicy(cfg.policy)
    envs.enable_save_replay(replay_path)
    envs.seed(seed)
    envs.launch()
    returns = []
    timer = EasyTimer(cuda=False)
    with timer:
        while not envs.done:
            obs = envs.ready_obs
            actions = policy.collect_mode.forward(obs, eps=0.5)
            timesteps = envs.step({env_id: output["action"] for env_id, output in actions.items()})
            returns += [each.info["eval_episode_return"] for each in timesteps.values() if each.done]
    envs.close()
    act = single_env_forward_wrapper(policy.eval_mode.forward)
    action = act(gym.make("CartPole-v1").reset(seed=seed)[0])
    return dict(returns=returns, action=action, seconds=timer.value)


if __name__ == "__main__":
    main(main_config)
