"""Train DQN on CartPole by a policy of one's own, whose models are wrapped as in DI-engine's guides."""

import copy

import torch
from ding.model import DQN, model_wrap
from ding.policy import Policy
from ding.rl_utils import q_nstep_td_data, q_nstep_td_error
from ding.torch_utils import Adam, to_tensor
from ding.utils import POLICY_REGISTRY
from ding.utils.data import default_collate, default_decollate


@POLICY_REGISTRY.register("my_wrapped_dqn")
class WrappedDQNPolicy(Policy):
    config = dict(
        type="my_wrapped_dqn",
        cuda=False,
        on_policy=False,
        model=dict(obs_shape=4, action_shape=2),
        learn=dict(batch_size=32, learning_rate=0.001, target_theta=0.1),
        collect=dict(n_sample=16, unroll_len=1),
    )

    def default_model(self):
        return "dqn", ["ding.model.template.q_learning"]

    def _build_model(self):
        return DQN(**self._cfg.model)

    def _init_learn(self):
        self._optimizer = Adam(self._model.parameters(), lr=self._cfg.learn.learning_rate)
        self._target_model = model_wrap(
            copy.deepcopy(self._model),
            wrapper_name="target",
            update_type="momentum",
            update_kwargs={"theta": self._cfg.learn.target_theta},
        )
        self._learn_model = model_wrap(self._model, wrapper_name="argmax_sample")
        self._learn_model.reset()
        self._target_model.reset()

    def _forward_learn(self, data):
        data = default_collate(data)
        self._learn_model.train()
        self._target_model.train()
        q_value = self._learn_model.forward(data["obs"])["logit"]
        with torch.no_grad():
            target_q = self._target_model.forward(data["next_obs"])["logit"]
            next_action = self._learn_model.forward(data["next_obs"])["action"]
        done = data["done"].float()
        td = q_nstep_td_data(
            q_value, target_q, data["action"].long(), next_action, data["reward"].reshape(1, -1), done, None
        )
        loss, _ = q_nstep_td_error(td, self._gamma, nstep=1)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._target_model.update(self._learn_model.state_dict())
        return {"cur_lr": self._optimizer.defaults["lr"], "total_loss": loss.item()}

    def _init_collect(self):
        self._collect_model = model_wrap(self._model, wrapper_name="eps_greedy_sample")
        self._collect_model.reset()

    def _forward_collect(self, data, eps=0.1):
        obs = default_collate([to_tensor(each, dtype=torch.float32) for each in data.values()])
        self._collect_model.eval()
        with torch.no_grad():
            output = self._collect_model.forward(obs, eps=eps)
        return dict(zip(data.keys(), default_decollate(output), strict=True))

    def _process_transition(self, obs, model_output, timestep):
        return {
            "obs": obs,
            "next_obs": timestep.obs,
            "action": model_output["action"],
            "reward": timestep.reward,
            "done": timestep.done,
        }

    def _get_train_sample(self, data):
        return data

    def _init_eval(self):
        self._eval_model = model_wrap(self._model, wrapper_name="argmax_sample")
        self._eval_model.reset()

    def _forward_eval(self, data):
        obs = default_collate([to_tensor(each, dtype=torch.float32) for each in data.values()])
        self._eval_model.eval()
        with torch.no_grad():
            output = self._eval_model.forward(obs)
        return dict(zip(data.keys(), default_decollate(output), strict=True))


main_config = dict(
    exp_name="model_wrap_dqn",
    env=dict(
        env_id="CartPole-v1", max_episode_steps=20, collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2
    ),
    policy=dict(cuda=False),
)
create_config = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="my_wrapped_dqn"))
