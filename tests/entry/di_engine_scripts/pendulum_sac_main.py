"""Train SAC on Pendulum from a config, every part made by its factory, as in DI-engine's guides."""

from functools import partial

from ding.config import compile_config
from ding.entry import random_collect
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import (
    BaseLearner,
    BaseSerialCommander,
    create_buffer,
    create_serial_collector,
    create_serial_evaluator,
)
from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name="pendulum_sac_main",
        env=dict(
            env_id="Pendulum-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=-250
        ),
        policy=dict(
            cuda=False,
            random_collect_size=100,
            model=dict(
                obs_shape=3,
                action_shape=1,
                twin_critic=True,
                action_space="reparameterization",
                actor_head_hidden_size=32,
                critic_head_hidden_size=32,
            ),
            learn=dict(update_per_collect=1, batch_size=32, learning_rate_q=1e-3, learning_rate_policy=1e-3),
            collect=dict(n_sample=10, unroll_len=1),
            eval=dict(evaluator=dict(eval_freq=100)),
            other=dict(replay_buffer=dict(replay_buffer_size=10000)),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type="sac"),
        replay_buffer=dict(type="naive"),
    )
)


def main(cfg, seed=0, max_env_step=int(1e10)):
    cfg = compile_config(cfg, seed=seed, auto=True, create_cfg=create_config, save_cfg=True)
    env_fn, collector_env_cfg, evaluator_env_cfg = get_vec_env_setting(cfg.env)
    collector_env = create_env_manager(cfg.env.manager, [partial(env_fn, cfg=c) for c in collector_env_cfg])
    evaluator_env = create_env_manager(cfg.env.manager, [partial(env_fn, cfg=c) for c in evaluator_env_cfg])
    collector_env.seed(cfg.seed)
    evaluator_env.seed(cfg.seed, dynamic_seed=False)
    set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
    policy = create_policy(cfg.policy, enable_field=["learn", "collect", "eval", "command"])

    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, exp_name=cfg.exp_name)
    collector = create_serial_collector(
        cfg.policy.collect.collector, env=collector_env, policy=policy.collect_mode, exp_name=cfg.exp_name
    )
    evaluator = create_serial_evaluator(
        cfg.policy.eval.evaluator, env=evaluator_env, policy=policy.eval_mode, exp_name=cfg.exp_name
    )
    replay_buffer = create_buffer(cfg.policy.other.replay_buffer, exp_name=cfg.exp_name)
    commander = BaseSerialCommander(
        cfg.policy.other.commander, learner, collector, evaluator, replay_buffer, policy.command_mode
    )
    learner.call_hook("before_run")
    random_collect(cfg.policy, policy, collector, collector_env, commander, replay_buffer)
    info = {}
    while collector.envstep < max_env_step:
        collect_kwargs = commander.step()
        if evaluator.should_eval(learner.train_iter):
            stop, info = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            if stop:
                break
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs=collect_kwargs)
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        for _ in range(cfg.policy.learn.update_per_collect):
            train_data = replay_buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            learner.train(train_data, collector.envstep)
    learner.call_hook("after_run")
    for part in (collector, evaluator, learner, replay_buffer):
        part.close()
    return dict(envstep=collector.envstep, train_iter=learner.train_iter, info=info)


if __name__ == "__main__":
    main(main_config)
