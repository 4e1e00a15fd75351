"""DQN whose target weighs the next values by a softmax, in place of their maximum."""

import torch
import torch.nn.functional as F
from stable_baselines3 import DQN


class SoftDQN(DQN):
    def train(self, gradient_steps, batch_size=100):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses = []
        for _ in range(gradient_steps):
            data = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            with torch.no_grad():
                values = self.q_net_target(data.next_observations)
                value = (torch.softmax(values / 0.1, dim=1) * values).sum(dim=1, keepdim=True)
                target = data.rewards + (1 - data.dones) * self.gamma * value
            q = torch.gather(self.q_net(data.observations), dim=1, index=data.actions.long())
            loss = F.smooth_l1_loss(q, target)
            self.policy.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            losses.append(loss.item())
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", sum(losses) / len(losses))
