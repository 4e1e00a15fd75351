"""Film the trained agent."""

import gymnasium as gym
import point_env  # noqa: F401
from PIL import Image
from soft_dqn import SoftDQN

model = SoftDQN.load("logs/soft_dqn/Point-v0_1/Point-v0.zip")
env = gym.make("Point-v0", render_mode="rgb_array")
obs, _ = env.reset(seed=0)
frames, done = [], False
while not done:
    frames.append(Image.fromarray(env.render()))
    action, _ = model.predict(obs, deterministic=True)
    obs, _, terminated, truncated, _ = env.step(int(action))
    done = terminated or truncated
frames[0].save("agent.gif", save_all=True, append_images=frames[1:], duration=100, loop=0)
