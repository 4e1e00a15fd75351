"""Load a trained model, act with it, and export it to ONNX."""

import gymnasium as gym
import numpy as np
import onnxruntime
import point_env  # noqa: F401
import torch
from soft_dqn import SoftDQN
from stable_baselines3.common.evaluation import evaluate_policy

FILE = "logs/soft_dqn/Point-v0_1/Point-v0.zip"


class Exported(torch.nn.Module):
    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def forward(self, observation):
        return self.policy(observation, deterministic=True)


model = SoftDQN.load(FILE)
env = gym.make("Point-v0")
mean, std = evaluate_policy(model, env, n_eval_episodes=20)
print(f"mean return {mean:.3f} +- {std:.3f}")
model.policy.set_training_mode(False)
sample = torch.zeros(1, 2)
torch.onnx.export(
    Exported(model.policy),
    (sample,),
    "point.onnx",
    input_names=["obs"],
    dynamic_axes={"obs": {0: "batch"}},
    dynamo=False,
)
session = onnxruntime.InferenceSession("point.onnx")
obs = np.random.default_rng(0).uniform(-1, 1, (100, 2)).astype(np.float32)
action, _ = model.predict(obs, deterministic=True)
assert (session.run(None, {"obs": obs})[0] == action).all()
print("exported: 100 equal actions")
