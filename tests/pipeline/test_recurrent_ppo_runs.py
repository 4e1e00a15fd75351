"""Recurrent PPO and IMPALA through whole runs: resumed exactly, and in `parallel`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipeline.parallel.test_units_train import running, spy_on_batches


def hidden_cartpole(policy: str, **section: Any) -> Any:
    main = dict(
        exp_name="exp",
        env=dict(
            env_id="CartPole-v1",
            collector_env_num=3,
            evaluator_env_num=2,
            n_evaluator_episode=2,
            wrappers=[dict(type="obs_select", indices=[0, 2])],
        ),
        policy=dict(model=dict(encoder_hidden_size_list=[8]), eval=dict(evaluator=dict(eval_freq=8)), **section),
    )
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=policy))


def ppo_recurrent() -> Any:
    learn = dict(batch_size=30, epoch_per_collect=2, seq_len=5, value_norm=True)
    return hidden_cartpole("ppo_recurrent", learn=learn, collect=dict(n_sample=60))


def impala() -> Any:
    buffer = dict(replay_buffer=dict(replay_buffer_size=40))
    learn = dict(batch_size=8, update_per_collect=2)
    return hidden_cartpole("impala", unroll_len=4, learn=learn, collect=dict(n_sample=6), other=buffer)


def r2d2() -> Any:
    main, create = hidden_cartpole(
        "r2d2",
        nstep=3,
        burnin_step=2,
        learn_unroll_len=4,
        learn=dict(batch_size=16, update_per_collect=2),
        collect=dict(n_sample=6),
        other=dict(replay_buffer=dict(replay_buffer_size=80)),
    )
    main["policy"]["eval"]["evaluator"]["eval_freq"] = 20
    return main, create


@pytest.mark.timeout(120)
def test_recurrent_ppo_trains_in_parallel_on_lanes_that_no_two_segments_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, ppo_recurrent(), max_env_step=600) as run:
        batches = spy_on_batches(run, monkeypatch)

        result = run.train()

    assert result["train_iter"] == len(batches) * 2 * 2 >= 36
    for batch in batches:
        assert len(batch) == 60 and np.isfinite(batch["advantage"]).all()
        for lane in np.unique(batch["lane"]):
            mine = batch["lane"] == lane
            step, episode = batch["step"][mine], batch["episode_id"][mine]
            assert (np.diff(step)[np.diff(episode) == 0] == 1).all(), "a lane is steps that follow each other"
            # Where an episode begins, so does its memory.
            assert not batch["state/h"][mine][step == 0].any()
    assert any(batch["state/h"].any() for batch in batches)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_impala_trains_in_parallel_at_the_serial_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, impala(), max_env_step=900) as run:
        batches = spy_on_batches(run, monkeypatch)

        result = run.train()

        assert result["train_iter"] == run.core.env_step * 2 // (6 * 4) >= 70
    for batch in batches:
        assert batch["obs"].shape == (8, 5, 2) and batch["log_prob"].shape == (8, 4)
        valid = np.arange(4) < batch["num_steps"][:, None]
        assert (batch["mask"] == valid).all() and (batch["log_prob"][valid] < 0).all()
