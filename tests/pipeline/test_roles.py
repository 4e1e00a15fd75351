"""Roles do the same work over any channels: here two policies, one in each thread, over those of one process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from ding_like.comm.channels import Receipt, Segment, Version, Weights
from ding_like.comm.local import BatchOnce, LocalRows
from ding_like.comm.weights.encode import decode, encode
from ding_like.comm.weights.extract import state_of
from ding_like.comm.weights.newest import NewestWeights
from ding_like.config import compile_config
from ding_like.data.batch import TransitionBatch
from ding_like.errors import SchemaError
from ding_like.pipeline.build.envs import build_collect_env
from ding_like.pipeline.build.parts import build_buffer, build_collector, build_learner, build_policy
from ding_like.pipeline.build.process import training_process
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.policy_weights import PolicyWeights
from ding_like.pipeline.roles.record import RunRecord
from ding_like.pipeline.roles.train import TrainRole
from ding_like.pipeline.update_ratio import UpdateRatio
from tests.pipeline.test_serial import make_configs

NUM_SEGMENTS = 12


class CopiedWeights(NewestWeights):
    """Publisher and reader of one process."""

    def publish(self, weights: Weights, *, to: object = None, wait_s: float | None = None) -> Receipt:
        self.put(decode(encode(weights)))
        return Receipt()

    def close(self) -> None: ...


def test_collector_and_learner_with_policies_of_their_own_learn_in_two_threads(tmp_path: Path) -> None:
    main, create = make_configs()
    cfg = compile_config({**main, "exp_name": str(tmp_path / "exp")}, create, seed=0, save=False)
    with training_process():
        env = build_collect_env(cfg, seed=0)
        fitted = fit_policy_config(cfg.policy, env)
        acting = build_policy(fitted, seed=1, modes=["collect", "command"])
        learning = build_policy(fitted, seed=2)
        collector, learner = build_collector(cfg, env, acting, seed=0), build_learner(cfg, learning, seed=0)
        buffer, weights = build_buffer(cfg, seed=0), CopiedWeights()
        rows = LocalRows(
            buffer,
            UpdateRatio.per_segment(cfg.policy.learn.update_per_collect),
            segment_rows=8,
            batch_size=cfg.policy.learn.batch_size,
            newest=lambda: Version(1, learner.train_iter),
        )

        def publish() -> None:
            version = Version(1, learner.train_iter)
            weights.publish(Weights("policy", version, state_of(learning.collect_mode)))

        loaded = PolicyWeights(acting, weights)
        collect = CollectRole(collector, loaded, sink=rows)
        thread = threading.Thread(target=collect.run)
        publish()
        thread.start()
        while learner.train_iter < NUM_SEGMENTS:
            while (batch := rows.next(timeout_s=1.0)) is None:  # rows are there, but not enough for an update
                assert not rows.finished
            learner.train(batch)
            rows.feedback(learner.train_iter, priority=None, info=dict)
        publish()
        rows.close()
        thread.join(10.0)

    assert not thread.is_alive() and rows.finished
    assert collector.envstep == rows.env_step > 0
    loaded.take_newest()
    assert loaded.version == Version(1, learner.train_iter)
    for name, tensor in learning.collect_mode.state_dict()["model"].items():
        assert torch.equal(acting.collect_mode.state_dict()["model"][name], tensor), name
    for part in (collector, learner, buffer):
        part.close()


class NoPriorities:
    """Be a learner whose policy gives none."""

    train_iter = 1
    priority_info: dict[str, object] = {}
    monitor = None
    collector_envstep = 0

    def train(self, data: object, envstep: int) -> None: ...


def once() -> LocalRows:
    return LocalRows(
        BatchOnce(), UpdateRatio.per_segment(1), segment_rows=1, batch_size=1, newest=lambda: Version(0, 0)
    )


def test_a_policy_that_owes_priorities_is_told(tmp_path: Path) -> None:
    rows = once()
    rows.put(Segment(TransitionBatch({"reward": torch.zeros(1).numpy()}), Version(0, 0), 1))

    with pytest.raises(SchemaError, match=r"gave no priorities.*policy.priority=False"):
        TrainRole(NoPriorities(), rows, with_priority=True).train_ready()  # type: ignore[arg-type]


class Console:
    """Keep what is said."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, text: str) -> None:
        self.events.append(text)


def test_the_record_says_each_better_evaluation_but_not_the_first(tmp_path: Path) -> None:
    record, console = RunRecord(str(tmp_path)), Console()
    for step, best in ((0, 10.0), (100, 10.0), (200, 25.0)):
        record.note_evaluation([best], best=best, env_step=step, duration_s=0.5, console=console)  # type: ignore[arg-type]

    assert console.events == ["env step 200  eval 25 is the best so far -> ckpt/ckpt_best.pth.tar"]
    progress = record.progress(env_step=200, train_iter=3)
    assert progress.eval_returns == [25.0] and progress.best_eval == 25.0 and progress.eval_duration_s == 1.5


def test_a_resumed_record_counts_what_went_before(tmp_path: Path) -> None:
    now = [100.0]
    before = RunRecord(str(tmp_path), clock=lambda: now[0])
    now[0] = 130.0
    state = before.state_dict()
    after = RunRecord(str(tmp_path), clock=lambda: now[0])
    now[0] = 135.0

    after.load_state_dict(state, best=-float("inf"))

    assert after.duration_s == 35.0
    result = after.conclude([1.0, 2.0], stop=True, env_step=7, train_iter=3)
    assert (result.eval_value, result.duration_s, result.eval_duration_s) == (1.5, 35.0, 0.0)
    assert (tmp_path / "result.json").is_file()
