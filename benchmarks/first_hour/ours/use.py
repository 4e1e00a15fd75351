"""Load the trained agent and act with it."""

import gymnasium
import point_env  # noqa: F401

import ding_like

agent = ding_like.load("point")
env = gymnasium.make("Point-v0")
returns = []
for seed in range(20):
    obs, _ = env.reset(seed=seed)
    agent.reset()
    total, done = 0.0, False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        total, done = total + reward, terminated or truncated
    returns.append(total)
print(f"mean return {sum(returns) / len(returns):.3f}")
