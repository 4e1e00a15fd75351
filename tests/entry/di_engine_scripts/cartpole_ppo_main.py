"""Train PPO on CartPole with a loop of its own, in the form of the scripts in DI-engine's documentation."""

import os
from copy import deepcopy

import gymnasium as gym
from ding.config import compile_config
from ding.envs import BaseEnvManager, DingEnvWrapper
from ding.model import VAC
from ding.policy import PPOPolicy
from ding.utils import deep_merge_dicts, set_pkg_seed
from ding.worker import BaseLearner, InteractionSerialEvaluator, SampleSerialCollector
from tensorboardX import SummaryWriter

main_config = dict(
    exp_name="cartpole_ppo_main",
    env=dict(
        manager=deep_merge_dicts(BaseEnvManager.default_config(), dict(shared_memory=False)),
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=5,
        stop_value=195,
    ),
    policy=dict(
        cuda=False,
        action_space="discrete",
        model=dict(
            obs_shape=4,
            action_shape=2,
            action_space="discrete",
            encoder_hidden_size_list=[64, 64, 128],
            critic_head_hidden_size=128,
            actor_head_hidden_size=128,
        ),
        learn=dict(
            epoch_per_collect=2,
            batch_size=64,
            learning_rate=0.001,
            value_weight=0.5,
            entropy_weight=0.01,
            clip_ratio=0.2,
            learner=dict(hook=dict(save_ckpt_after_iter=1000)),
        ),
        collect=dict(n_sample=256, unroll_len=1, discount_factor=0.9, gae_lambda=0.95),
        eval=dict(evaluator=dict(eval_freq=100)),
    ),
)


def main(cfg, seed=0, max_env_step=int(1e10)):
    cfg = compile_config(
        deepcopy(cfg),
        BaseEnvManager,
        PPOPolicy,
        BaseLearner,
        SampleSerialCollector,
        InteractionSerialEvaluator,
        save_cfg=True,
    )
    collector_env = BaseEnvManager(
        env_fn=[lambda: DingEnvWrapper(gym.make("CartPole-v1")) for _ in range(cfg.env.collector_env_num)],
        cfg=cfg.env.manager,
    )
    evaluator_env = BaseEnvManager(
        env_fn=[lambda: DingEnvWrapper(gym.make("CartPole-v1")) for _ in range(cfg.env.evaluator_env_num)],
        cfg=cfg.env.manager,
    )
    collector_env.seed(seed)
    evaluator_env.seed(seed, dynamic_seed=False)
    set_pkg_seed(seed, use_cuda=cfg.policy.cuda)

    model = VAC(**cfg.policy.model)
    policy = PPOPolicy(cfg.policy, model=model)
    tb_logger = SummaryWriter(os.path.join(f"./{cfg.exp_name}/log/", "serial"))
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, tb_logger, exp_name=cfg.exp_name)
    collector = SampleSerialCollector(
        cfg.policy.collect.collector, collector_env, policy.collect_mode, tb_logger, exp_name=cfg.exp_name
    )
    evaluator = InteractionSerialEvaluator(
        cfg.policy.eval.evaluator, evaluator_env, policy.eval_mode, tb_logger, exp_name=cfg.exp_name
    )

    info = {}
    while collector.envstep < max_env_step:
        if evaluator.should_eval(learner.train_iter):
            stop, info = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            if stop:
                break
        new_data = collector.collect(train_iter=learner.train_iter)
        learner.train(new_data, collector.envstep)
    learner.call_hook("after_run")
    for part in (collector, evaluator, learner, tb_logger):
        part.close()
    return dict(envstep=collector.envstep, train_iter=learner.train_iter, info=info)


if __name__ == "__main__":
    main(main_config)
