"""A learner that loses another saves what it has; the next attempt goes on from there, by another process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import compile_config, read_config
from ding_like.errors import CommError
from ding_like.pipeline.build import training_process
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.parallel.learner_aggregator import LearnerAggregator
from ding_like.pipeline.parallel.make_core import make_core
from ding_like.pipeline.parallel.service import LockedService
from ding_like.pipeline.parallel.settings import read_system
from ding_like.utils.resume import ResumeStore
from ding_like.worker import FlaskFileSystemCollector, FlaskFileSystemLearner

CONFIG = """
main_config = dict(exp_name="run", env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2,
    n_evaluator_episode=2), policy=dict(model=dict(encoder_hidden_size_list=[8]), learn=dict(batch_size=16),
    collect=dict(n_sample=8), eval=dict(evaluator=dict(eval_freq=10000))))
create_config = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
"""
KILL_AT = 20


def kill_rank_1_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Kill the second learner before a batch is shared; return the list that will hold the updates made by then."""
    killed: list[int] = []
    share = LearnerAggregator.share

    def kill_first(aggregator: LearnerAggregator, batch: Any, *, train_iter: int = 0) -> Any:
        if train_iter >= KILL_AT and not killed:
            killed.append(train_iter)
            os.kill(aggregator.pid(1), signal.SIGKILL)
        return share(aggregator, batch, train_iter=train_iter)

    monkeypatch.setattr(LearnerAggregator, "share", kill_first)
    return killed


@pytest.mark.slow
def test_the_next_attempt_goes_on_where_a_learner_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.py"
    path.write_text(CONFIG)
    file = read_config(path)
    main = compile_config(file.main_config, file.create_config, seed=0)
    paths = {"path_data": str(tmp_path / "data"), "path_policy": str(tmp_path / "policy")}
    system = read_system({**paths, "num_collectors": 1, "num_learners": 2}, main)
    core, commander = make_core(main, system, store=StateStore(tmp_path / "state"), seed=0, max_env_step=800)
    service = LockedService(core)
    cfg = {"main": main, "seed": 0, "num_batches": 4, "publish_interval_s": 0.0, **paths}
    cfg |= {"num_learners": 2, "config_file": path}
    killed = kill_rank_1_once(monkeypatch)

    with training_process():
        collector = FlaskFileSystemCollector(cfg, coordinator=service)
        collector.start()
        thread = threading.Thread(target=collector.run, daemon=True)
        thread.start()
        try:
            lost = FlaskFileSystemLearner(cfg, coordinator=service)
            lost.start()
            with pytest.raises(CommError, match="learner rank 1 of 2 was killed by SIGKILL"):
                lost.run()
            lost.close()
            saved = ResumeStore(Path(main.exp_name, "learner_state"), durable=False).load_newest()
            second = FlaskFileSystemLearner(cfg, coordinator=service)
            second.start()
            second.run()
            second.close()
        finally:
            collector.stop()
            thread.join(20)
            collector.close()
            core.close()

    assert killed == [saved.parts["learner"]["last_iter"]], "all that was learned is saved"
    assert commander.learn_result["train_iter"] > killed[0]
    assert commander.learn_result["env_step"] >= 800
