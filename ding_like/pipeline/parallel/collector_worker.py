"""Collect for a coordinator: act with the newest weights, write segments, evaluate when asked to."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ding_like.comm import messages as m
from ding_like.comm.agent import TaskHandle
from ding_like.comm.service import CoordinatorService
from ding_like.comm.weight_files import read_weights
from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import SegmentMeta, write_segment
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.pipeline.build import EnvSetting
from ding_like.pipeline.parallel.settings import SystemConfig
from ding_like.pipeline.spaces import fit_policy_config
from ding_like.policy import create_policy
from ding_like.policy.random_policy import random_collect_mode
from ding_like.utils.checkpoint import save_state
from ding_like.utils.seeding import make_rng, set_pkg_seed
from ding_like.worker import (
    InteractionSerialEvaluator,
    SampleSerialCollector,
    create_serial_collector,
    create_serial_evaluator,
)

logger = logging.getLogger(__name__)

_WAIT_S = 1.0  # for credit, before it is asked again


class CollectorWorker:
    """Do the collect and eval tasks of one process; envs and open episodes stay from task to task."""

    def __init__(
        self,
        cfg: Any,
        system: SystemConfig,
        coordinator: CoordinatorService,
        *,
        worker_id: str,
        seed: int,
        env_setting: EnvSetting | None = None,
    ) -> None:
        self._cfg = cfg
        self._system = system
        self._coordinator = coordinator
        self._worker_id = worker_id
        self._seed = seed
        setting: EnvSetting = env_setting or get_vec_env_setting(cfg.env)
        self._env_fn, self._collector_cfgs, self._evaluator_cfgs = setting
        self._policy: Any = None
        self._collector: SampleSerialCollector | None = None
        self._evaluator: InteractionSerialEvaluator | None = None
        self._acts_at_random = False
        self._loaded: tuple[int, int] | None = None  # (attempt, version) of the weights
        self._num_segments = 0

    def run(self, task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        """Do one task and return its result."""
        if self._policy is None:
            self._build(int(task.cfg["worker_index"]))
        return self._evaluate(task, handle) if task.kind == "eval" else self._collect(task, handle)

    def close(self) -> None:
        """Close the envs."""
        for part in (self._collector, self._evaluator):
            if part is not None:
                part.close()

    def _build(self, index: int) -> None:
        """Make envs, policy and collector; lanes of all collectors have seeds of their own."""
        cfg = self._cfg
        seed = self._seed + index * len(self._collector_cfgs)
        manager = create_env_manager(cfg.env.manager, [EnvFactory(env, self._env_fn) for env in self._collector_cfgs])
        manager.seed(seed)
        manager.launch()
        set_pkg_seed(seed, use_cuda=bool(cfg.policy.cuda))
        self._policy = create_policy(
            fit_policy_config(cfg.policy, manager), enable_field=["collect", "eval", "command"]
        )
        self._manager = manager
        self._collector = create_serial_collector(
            cfg.policy.collect.collector,
            env=manager,
            policy=self._policy.collect_mode,
            rng=make_rng(seed, "collector"),
            exp_name=cfg.exp_name,
            instance_name=f"collector{index}",
        )

    # --- collecting

    def _collect(self, task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        """Send segment after segment while there is credit, until the task is asked back."""
        rows_before = self._num_segments
        reply: m.TaskInfoReply | m.SendDataReply = self._ask(task)
        while not (reply.finish or handle.finish_asked):
            if reply.credit == 0:
                reply = self._ask(task)
                continue
            self._load(task.policy_id, handle.newest_policy or reply.policy)
            reply = self._send(task, reply.credit, reply.env_step)
        return {"segments": self._num_segments - rows_before}

    def _ask(self, task: m.Task) -> m.TaskInfoReply:
        return self._coordinator.task_info(self._worker_id, task.task_id, m.TaskInfo(task.attempt, {}, wait_s=_WAIT_S))

    def _send(self, task: m.Task, num_rows: int, env_step: int) -> m.SendDataReply:
        """Collect a segment, write it and announce it."""
        assert self._collector is not None
        collector = self._collector
        self._act_at_random(env_step < self._cfg.policy.random_collect_size)
        before, version = collector.envstep, 0 if self._loaded is None else self._loaded[1]
        setting = self._policy.command_mode.get_setting_collect({"envstep": env_step})
        batch = collector.collect(n_sample=num_rows, train_iter=version, policy_kwargs=setting)
        assert isinstance(batch, TransitionBatch), "rows of a parallel run stack"
        env_steps = collector.envstep - before
        name = f"{self._worker_id}.{self._num_segments:08d}"
        meta = SegmentMeta(
            task_id=task.task_id,
            attempt=task.attempt,
            worker_id=self._worker_id,
            number=self._num_segments,
            policy_version=version,
            env_steps=env_steps,
        )
        written = write_segment(self._system.path_data, name, batch.columns, meta)
        info = m.SegmentInfo(
            name=written.name,
            rows=written.rows,
            sha256=written.sha256,
            nbytes=written.nbytes,
            schema_hash=written.schema_hash,
            policy_version=version,
            env_steps=env_steps,
            stats={"return": _finite(collector.mean_return), "length": _finite(collector.mean_length), **setting},
        )
        self._num_segments += 1
        return self._coordinator.send_data(self._worker_id, task.task_id, m.SendData(task.attempt, (info,)))

    def _act_at_random(self, at_random: bool) -> None:
        """Fill the buffer with random actions first, as the serial pipeline does."""
        if at_random == self._acts_at_random:
            return
        assert self._collector is not None
        mode = self._policy.collect_mode
        self._collector.reset_policy(random_collect_mode(mode, self._manager.action_space) if at_random else mode)
        self._acts_at_random = at_random

    def _load(self, policy_id: str, newest: m.PolicyVersion | None) -> None:
        """Take over the newest weights if they are newer than ours."""
        if newest is None or (newest.attempt, newest.version) == self._loaded:
            return
        state = read_weights(self._system.path_policy, policy_id, newest.attempt, newest.version, sha256=newest.sha256)
        self._policy.collect_mode.load_state_dict({"model": state})
        self._loaded = (newest.attempt, newest.version)

    # --- evaluating

    def _evaluate(self, task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        """Play the episodes of an evaluation with the newest weights; the best weights so far become a checkpoint."""
        if self._evaluator is None:
            self._evaluator = self._make_evaluator()
        self._load(task.policy_id, handle.newest_policy or task.policy)
        result = self._evaluator.play(int(task.cfg["n_episode"]), number=int(task.cfg["number"]))
        version = 0 if self._loaded is None else self._loaded[1]
        best = task.cfg["best_return"]
        if best is None or result.mean > best:
            path = Path(self._cfg.exp_name) / "ckpt" / "ckpt_best.pth.tar"
            save_state(path, {**self._policy.eval_mode.state_dict(), "last_iter": version})
        return {
            "returns": result.returns,
            "lengths": result.lengths,
            "version": version,
            "duration_s": result.duration_s,
        }

    def _make_evaluator(self) -> InteractionSerialEvaluator:
        cfg = self._cfg
        manager = create_env_manager(cfg.env.manager, [EnvFactory(env, self._env_fn) for env in self._evaluator_cfgs])
        manager.seed(self._seed)
        manager.launch()
        return create_serial_evaluator(
            cfg.policy.eval.evaluator,
            env=manager,
            policy=self._policy.eval_mode,
            seed=self._seed,
            exp_name=cfg.exp_name,
        )


def _finite(value: float) -> float | None:
    return value if value == value else None
