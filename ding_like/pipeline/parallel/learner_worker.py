"""Learn for a coordinator: train on batches of the mirror, publish weights, judge the last model."""

from __future__ import annotations

import logging
import time
from typing import Any

import torch

from ding_like.comm import messages as m
from ding_like.comm.agent import TaskHandle
from ding_like.comm.service import CoordinatorService
from ding_like.comm.weight_files import write_weights
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.errors import CommError
from ding_like.pipeline.build import EnvSetting
from ding_like.pipeline.parallel.batch_source import BatchSource
from ding_like.pipeline.parallel.settings import SystemConfig
from ding_like.pipeline.spaces import fit_policy_config
from ding_like.policy import create_policy
from ding_like.utils.seeding import make_rng, set_pkg_seed
from ding_like.worker import InteractionSerialEvaluator, create_learner, create_serial_evaluator

logger = logging.getLogger(__name__)

_FINAL_EPISODES = 20
_FINAL_NUMBER = -1  # of the evaluation that judges the last model: its episodes are none that a stop rule has seen
_NO_DATA_S = 600.0  # without a batch for so long, the learner gives up


class LearnerWorker:
    """Do the learn tasks of one process."""

    def __init__(
        self,
        cfg: Any,
        system: SystemConfig,
        coordinator: CoordinatorService,
        *,
        worker_id: str,
        seed: int,
        env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None,
        max_train_iter: float = float("inf"),
    ) -> None:
        self._cfg = cfg
        self._system = system
        self._coordinator = coordinator
        self._worker_id = worker_id
        self._seed = seed
        self._max_train_iter = max_train_iter
        self._evaluator = self._make_evaluator(env_setting)
        set_pkg_seed(seed, use_cuda=bool(cfg.policy.cuda))
        fitted = fit_policy_config(cfg.policy, self._evaluator.env)
        self._policy = create_policy(fitted, model=model)
        self._evaluator.reset_policy(self._policy.eval_mode)
        self._learner = create_learner(
            cfg.policy.learn.learner,
            policy=self._policy.learn_mode,
            rng=make_rng(seed, "learner"),
            exp_name=cfg.exp_name,
        )
        self._published: int | None = None
        self._published_s = 0.0

    def run(self, task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        """Train until the task is to be finished, save the last model, and return what it is worth."""
        learner = self._learner
        learner.call_hook("before_run")
        self._publish(task)
        started = time.monotonic()
        source = BatchSource(
            self._coordinator,
            task,
            worker_id=self._worker_id,
            folder=self._system.path_data,
            batch_size=self._cfg.policy.learn.batch_size,
            buffer_size=int(self._cfg.policy.other.replay_buffer.replay_buffer_size),
            num_batches=self._system.num_batches,
        )
        first_s, last_s = None, started
        try:
            while not (source.finish or handle.finish_asked) and learner.train_iter < self._max_train_iter:
                batch = source.next(timeout_s=1.0)
                if batch is None:
                    if time.monotonic() - last_s > _NO_DATA_S:
                        raise CommError(f"no batch has come for {_NO_DATA_S:g} s: no collector sends data.")
                    continue
                first_s = first_s or time.monotonic()
                learner.train(batch, source.env_step)
                last_s = time.monotonic()
                priorities = learner.priority_info if self._cfg.policy.priority else {}
                source.report(learner.train_iter, self._info, priorities)
                self._publish_if_due(task)
        finally:
            source.close()
        self._publish(task)
        learner.call_hook("after_run")
        train_s = last_s - (first_s or last_s)
        return {**self._judge(), "env_step": source.env_step, "train_iter": learner.train_iter, "train_s": train_s}

    def close(self) -> None:
        """Close learner and envs."""
        self._learner.close()
        self._evaluator.close()

    def _info(self) -> dict[str, Any]:
        monitor = self._learner.monitor
        return {} if monitor is None else {name: float(value) for name, value in monitor.averages().items()}

    def _publish_if_due(self, task: m.Task) -> None:
        """Publish by time, and at every iteration that an evaluation waits for."""
        at_evaluation = self._learner.train_iter % self._cfg.policy.eval.evaluator.eval_freq == 0
        if at_evaluation or time.monotonic() - self._published_s >= self._system.publish_interval_s:
            self._publish(task)

    def _publish(self, task: m.Task) -> None:
        version = self._learner.train_iter
        if version == self._published:
            return
        state = self._policy.collect_mode.state_dict()["model"]
        written = write_weights(self._system.path_policy, task.policy_id, task.attempt, version, state)
        message = m.Publish(task.task_id, task.attempt, version, written.sha256, written.nbytes)
        self._coordinator.publish(self._worker_id, task.policy_id, message)
        self._published = version
        self._published_s = time.monotonic()

    def _make_evaluator(self, env_setting: EnvSetting | None) -> InteractionSerialEvaluator:
        cfg = self._cfg
        env_fn, _, env_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
        manager = create_env_manager(cfg.env.manager, [EnvFactory(env, env_fn) for env in env_cfgs])
        manager.seed(self._seed)
        manager.launch()
        return create_serial_evaluator(
            cfg.policy.eval.evaluator, env=manager, policy=None, seed=self._seed, exp_name=cfg.exp_name
        )

    def _judge(self) -> dict[str, Any]:
        """Evaluate the last model on fresh episodes."""
        assert self._evaluator.env is not None
        episodes = max(_FINAL_EPISODES, self._evaluator.env.num_lanes)
        final = self._evaluator.play(episodes, number=_FINAL_NUMBER)
        return {"eval_value": final.mean, "eval_value_raw": final.returns, "judge_s": final.duration_s}
