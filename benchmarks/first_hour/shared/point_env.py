"""A point on a line that is to stand on its goal."""

import gymnasium as gym
import numpy as np


class PointEnv(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode=None):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(3)  # left, stay, right
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal = self.np_random.uniform(-1.0, 1.0, size=2)
        return self._obs(), {}

    def step(self, action):
        self.at = float(np.clip(self.at + 0.1 * (action - 1), -1.0, 1.0))
        far = abs(self.at - self.goal)
        return self._obs(), -far, False, False, {"is_success": bool(far < 0.1)}

    def render(self):
        picture = np.full((60, 240, 3), 255, np.uint8)
        for place, colour in ((self.goal, (0, 158, 115)), (self.at, (213, 94, 0))):
            column = int(110 * (place + 1.0)) + 5
            picture[20:40, column : column + 10] = colour
        return picture

    def _obs(self):
        return np.array([self.at, self.goal], np.float32)


gym.register("Point-v0", entry_point=PointEnv, max_episode_steps=30)
