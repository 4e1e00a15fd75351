"""Train DQN on CartPole with a loop of its own, as the scripts in DI-engine's documentation do."""

import os

import gymnasium as gym
from ding.config import compile_config
from ding.envs import BaseEnvManager, DingEnvWrapper
from ding.model import DQN
from ding.policy import DQNPolicy
from ding.rl_utils import get_epsilon_greedy_fn
from ding.utils import set_pkg_seed
from ding.worker import AdvancedReplayBuffer, BaseLearner, InteractionSerialEvaluator, SampleSerialCollector
from easydict import EasyDict
from tensorboardX import SummaryWriter

main_config = EasyDict(
    dict(
        exp_name="cartpole_dqn_main",
        env=dict(
            manager=dict(shared_memory=True, reset_inplace=True),
            collector_env_num=8,
            evaluator_env_num=5,
            n_evaluator_episode=5,
            stop_value=195,
        ),
        policy=dict(
            cuda=False,
            model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
            nstep=3,
            discount_factor=0.97,
            learn=dict(update_per_collect=5, batch_size=64, learning_rate=0.001, target_update_freq=100),
            collect=dict(n_sample=80),
            eval=dict(evaluator=dict(eval_freq=40)),
            other=dict(
                eps=dict(type="exp", start=0.95, end=0.1, decay=10000), replay_buffer=dict(replay_buffer_size=20000)
            ),
        ),
    )
)


def wrapped_cartpole_env():
    return DingEnvWrapper(gym.make("CartPole-v1", max_episode_steps=200), cfg=dict(env_wrapper="default"))


def main(cfg, seed=0, max_env_step=int(1e10)):
    cfg = compile_config(
        cfg,
        BaseEnvManager,
        DQNPolicy,
        BaseLearner,
        SampleSerialCollector,
        InteractionSerialEvaluator,
        AdvancedReplayBuffer,
        save_cfg=True,
    )
    collector_env_num, evaluator_env_num = cfg.env.collector_env_num, cfg.env.evaluator_env_num
    collector_env = BaseEnvManager(env_fn=[wrapped_cartpole_env for _ in range(collector_env_num)], cfg=cfg.env.manager)
    evaluator_env = BaseEnvManager(env_fn=[wrapped_cartpole_env for _ in range(evaluator_env_num)], cfg=cfg.env.manager)

    collector_env.seed(seed)
    evaluator_env.seed(seed, dynamic_seed=False)
    set_pkg_seed(seed, use_cuda=cfg.policy.cuda)

    model = DQN(**cfg.policy.model)
    policy = DQNPolicy(cfg.policy, model=model)

    tb_logger = SummaryWriter(os.path.join(f"./{cfg.exp_name}/log/", "serial"))
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, tb_logger, exp_name=cfg.exp_name)
    collector = SampleSerialCollector(
        cfg.policy.collect.collector, collector_env, policy.collect_mode, tb_logger, exp_name=cfg.exp_name
    )
    evaluator = InteractionSerialEvaluator(
        cfg.policy.eval.evaluator, evaluator_env, policy.eval_mode, tb_logger, exp_name=cfg.exp_name
    )
    replay_buffer = AdvancedReplayBuffer(cfg.policy.other.replay_buffer, tb_logger, exp_name=cfg.exp_name)

    eps_cfg = cfg.policy.other.eps
    epsilon_greedy = get_epsilon_greedy_fn(eps_cfg.start, eps_cfg.end, eps_cfg.decay, eps_cfg.type)

    stop, info = False, {}
    while collector.envstep < max_env_step:
        if evaluator.should_eval(learner.train_iter):
            stop, info = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            if stop:
                break
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        for _ in range(cfg.policy.learn.update_per_collect):
            train_data = replay_buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            if train_data is not None:
                learner.train(train_data, collector.envstep)
    for part in (collector, evaluator, learner, replay_buffer, tb_logger):
        part.close()
    return stop, info, collector.envstep


if __name__ == "__main__":
    main(main_config)
