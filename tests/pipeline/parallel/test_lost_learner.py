"""A learner that loses another saves what it has; the next attempt goes on from there, by another process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import read_config
from ding_like.errors import CommError
from ding_like.pipeline.learners.synced import LearnerAggregator
from ding_like.utils.resume import ResumeStore
from tests.pipeline.parallel.runs import running, working

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
def test_the_next_attempt_goes_on_where_a_learner_was_lost(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = in_tmp / "config.py"
    path.write_text(CONFIG)
    file = read_config(path)
    killed = kill_rank_1_once(monkeypatch)

    config = (file.main_config, file.create_config)
    with running(in_tmp, config, max_env_step=800, collectors=1, num_learners=2) as run:
        run.cfg |= {"num_learners": 2, "config_file": path}
        with working([run.new_collector()]):
            lost = run.new_learner()
            lost.start()
            with pytest.raises(CommError, match="learner rank 1 of 2 was killed by SIGKILL"):
                lost.run()
            lost.close()
            saved = ResumeStore(Path(run.cfg["main"].exp_name, "learner_state"), durable=False).load_newest()
            second = run.new_learner()
            second.start()
            second.run()
        result = run.commander.learn_result

    assert killed == [saved.parts["learner"]["last_iter"]], "all that was learned is saved"
    assert result["train_iter"] > killed[0] and result["env_step"] >= 800
