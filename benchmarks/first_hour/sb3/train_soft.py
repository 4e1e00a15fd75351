"""The zoo's training command, with an algorithm of our own."""

import rl_zoo3
import rl_zoo3.exp_manager
import rl_zoo3.train
from soft_dqn import SoftDQN

rl_zoo3.ALGOS["soft_dqn"] = SoftDQN
rl_zoo3.train.ALGOS = rl_zoo3.ALGOS
rl_zoo3.exp_manager.ALGOS = rl_zoo3.ALGOS

if __name__ == "__main__":
    rl_zoo3.train.train()
