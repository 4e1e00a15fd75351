"""Runs whose coordinator, collectors and learner are in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import compile_config, deep_merge
from ding_like.pipeline.parallel.coordinator import LockedService, make_core
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.parallel.settings import read_system
from ding_like.pipeline.process import training_process
from ding_like.worker import BaseLearner, FlaskFileSystemCollector, FlaskFileSystemLearner

JOIN_S = 60.0


def configs(policy: str, *, env: dict[str, Any] | None = None, collector: str = "sample", **section: Any) -> Any:
    """Return both parts of a config of CartPole for a policy."""
    main = dict(
        env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, **(env or {})),
        policy=deep_merge(
            dict(
                model=dict(encoder_hidden_size_list=[8]),
                learn=dict(batch_size=16),
                eval=dict(evaluator=dict(eval_freq=10_000)),
            ),
            section,
        ),
    )
    create = dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type="base"),
        policy=dict(type=policy),
        collector=dict(type=collector),
    )
    return main, create


def small_dqn() -> Any:
    """Return a config whose DQN makes one update for 8 env steps, after 32 at random."""
    return configs(
        "dqn",
        random_collect_size=32,
        learn=dict(update_per_collect=1),
        collect=dict(n_sample=8),
        other=dict(replay_buffer=dict(replay_buffer_size=200)),
    )


class Run:
    """Coordinator's service, and the workers that are made for it."""

    def __init__(self, folder: Path, config: Any, *, max_env_step: int, num_collectors: int = 2, **system: Any) -> None:
        folder.mkdir(exist_ok=True)
        main, create = config
        main = compile_config({**main, "exp_name": str(folder / "run")}, create, seed=0)
        paths = {"path_data": str(folder / "data"), "path_policy": str(folder / "policy")}
        self.system = read_system({**paths, "num_collectors": num_collectors, **system}, main)
        store = StateStore(folder / "state.sqlite")
        self.core, self.commander = make_core(main, self.system, store=store, seed=0, max_env_step=max_env_step)
        self.service = LockedService(self.core)
        self.cfg = {"main": main, "seed": 0, "num_batches": 4, "publish_interval_s": 0.0, **paths}
        self.collectors: list[FlaskFileSystemCollector] = []
        self.learners: list[FlaskFileSystemLearner] = []
        self.parts = ExitStack()  # closes what else was made for the run

    @property
    def learner(self) -> FlaskFileSystemLearner:
        """The learner that was made last."""
        return self.learners[-1]

    def new_collector(self) -> FlaskFileSystemCollector:
        self.collectors.append(FlaskFileSystemCollector(self.cfg, coordinator=self.service))
        return self.collectors[-1]

    def new_learner(self) -> FlaskFileSystemLearner:
        self.learners.append(FlaskFileSystemLearner(self.cfg, coordinator=self.service))
        return self.learners[-1]

    def train(self) -> dict[str, Any]:
        """Run new workers, as many collectors as the system has, until the end; return the learner's result."""
        for _ in range(self.system.num_collectors):
            self.new_collector()
        learner = self.new_learner()
        learner.start()
        with working(self.collectors):
            learner.run()
        assert self.core.failure is None
        return dict(self.commander.learn_result)

    def close(self) -> None:
        self.parts.close()
        for worker in (*self.collectors, *self.learners):
            worker.close()
        self.core.close()


@contextmanager
def working(workers: Sequence[Any]) -> Iterator[None]:
    """Run workers in threads of their own; they have ended in the end."""
    for each in workers:
        each.start()
    threads = [threading.Thread(target=each.run, daemon=True) for each in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each in workers:
            each.stop()
        for thread in threads:
            thread.join(JOIN_S)
    assert not any(thread.is_alive() for thread in threads)


@contextmanager
def running(folder: Path, config: Any, *, collectors: int = 2, **kwargs: Any) -> Iterator[Run]:
    """Give a run in a process that is set up for training."""
    with training_process():
        run = Run(folder, config, num_collectors=collectors, **kwargs)
        try:
            yield run
        finally:
            run.close()


def spy_on_batches(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list that will hold every batch that is trained on."""
    batches: list[Any] = []
    train = BaseLearner.train

    def keep(learner: Any, batch: Any, *arguments: Any) -> Any:
        batches.append(batch)
        return train(learner, batch, *arguments)

    monkeypatch.setattr(BaseLearner, "train", keep)
    return batches
