"""Train on an env of one's own, in DI-engine's style, given to the pipeline as functions and run in subprocesses."""

import copy

import gymnasium as gym
import numpy as np
from ding.entry import serial_pipeline
from ding.envs import BaseEnv, BaseEnvTimestep, DingEnvWrapper, TimeLimitWrapper
from ding.torch_utils import to_ndarray
from ding.utils import ENV_REGISTRY
from easydict import EasyDict


@ENV_REGISTRY.register("walk_to_the_right")
class WalkEnv(BaseEnv):
    def __init__(self, cfg):
        self._cfg = cfg
        self._observation_space = gym.spaces.Box(low=-5.0, high=5.0, shape=(1,), dtype=np.float32)
        self._action_space = gym.spaces.Discrete(2)
        self._reward_space = gym.spaces.Box(low=-1.0, high=1.0, shape=(1,), dtype=np.float32)
        self._init_flag = False

    def reset(self):
        if not self._init_flag:
            self._rng = np.random.RandomState(self._seed)
            self._init_flag = True
        self._place = float(self._rng.randint(-2, 3))
        self._steps = 0
        self._eval_episode_return = 0.0
        return to_ndarray([self._place], dtype=np.float32)

    def step(self, action):
        assert isinstance(action, np.ndarray), type(action)
        self._place = float(np.clip(self._place + (1 if int(action) == 1 else -1), -5, 5))
        self._steps += 1
        reward = 1.0 if self._place > 0 else 0.0
        self._eval_episode_return += reward
        done = self._steps >= self._cfg.length
        info = {"eval_episode_return": self._eval_episode_return} if done else {}
        obs = to_ndarray([self._place], dtype=np.float32)
        return BaseEnvTimestep(obs, to_ndarray([reward]).astype(np.float32), done, info)

    def seed(self, seed, dynamic_seed=True):
        self._seed = seed
        self._dynamic_seed = dynamic_seed
        self._init_flag = False

    def close(self):
        self._init_flag = False

    def __repr__(self):
        return "walk to the right"

    @staticmethod
    def create_collector_env_cfg(cfg):
        collector_cfg = copy.deepcopy(cfg)
        collector_env_num = collector_cfg.pop("collector_env_num")
        return [collector_cfg for _ in range(collector_env_num)]


def mountain_car(cfg):
    """Return an env of gymnasium with a wrapper of DI-engine's around it."""
    return DingEnvWrapper(
        gym.make("MountainCar-v0"), cfg=dict(env_wrapper=[lambda env: TimeLimitWrapper(env, max_limit=cfg.length)])
    )


main_config = EasyDict(
    dict(
        exp_name="walk_dqn",
        env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=100, length=12),
        policy=dict(
            cuda=False,
            model=dict(encoder_hidden_size_list=[16]),
            learn=dict(batch_size=16),
            collect=dict(n_sample=16),
            other=dict(
                eps=dict(type="exp", start=0.95, end=0.1, decay=1000), replay_buffer=dict(replay_buffer_size=500)
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="walk_to_the_right", import_names=[]),
        env_manager=dict(type="subprocess"),
        policy=dict(type="dqn"),
    )
)


def main(cfg, seed=0, max_env_step=int(1e10), make=WalkEnv, manager="subprocess"):
    create_config.env_manager.type = manager
    env_cfg = EasyDict(length=cfg.env.length)
    setting = (lambda env_cfg: make(env_cfg), [env_cfg] * 2, [env_cfg] * 2)
    return serial_pipeline([cfg, create_config], seed, env_setting=setting, max_env_step=max_env_step)


if __name__ == "__main__":
    main(main_config)
