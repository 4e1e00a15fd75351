"""Teams that learn agent by agent, through whole runs of a game whose agents leave as they arrive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from tests.pipeline.parallel.runs import running, spy_on_batches

ROOT = Path(__file__).parents[2]


def switch(policy: str, **section: Any) -> Any:
    """Return the configs of a small run of the switch game, whose agents leave as they arrive."""
    main = dict(
        exp_name="exp",
        env=dict(agents=2, collector_env_num=3, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(model=dict(encoder_hidden_size_list=[8]), eval=dict(evaluator=dict(eval_freq=20)), **section),
    )
    env = dict(type="switch_game", import_names=["dizoo.multi_agent.switch_game"])
    return main, dict(env=env, env_manager=dict(type="base"), policy=dict(type=policy))


def on_policy(policy: str) -> Any:
    """Return the configs of a small run of a policy that learns from the rows that it has just made."""
    return switch(policy, learn=dict(batch_size=40, epoch_per_collect=2), collect=dict(n_sample=60))


def idqn() -> Any:
    learn = dict(batch_size=16, update_per_collect=2)
    return switch("idqn", learn=learn, collect=dict(n_sample=6), other=dict(replay_buffer=dict(replay_buffer_size=80)))


# Policy -> env steps, and the return that it finds; the best is 1.15, and each step that agents lose costs 0.1.
FOUND = {"ippo": (40_000, 1.14), "mappo": (40_000, 1.14), "idqn": (40_000, 1.14), "happo": (60_000, 0.94)}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FOUND)
def test_agents_learn_to_pass_each_other_and_to_leave(name: str, tmp_path: Path) -> None:
    steps, wanted = FOUND[name]
    train, exp = serial_pipeline if name == "idqn" else serial_pipeline_onpolicy, str(tmp_path / "exp")

    train(str(ROOT / f"dizoo/multi_agent/config/switch_{name}_config.py"), seed=0, exp_name=exp, max_env_step=steps)

    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert result["eval_value"] > wanted


@pytest.mark.timeout(120)
def test_rows_of_a_team_travel_whole_and_agents_that_left_are_learned_from_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, on_policy("mappo"), max_env_step=1500) as run:
        batches = spy_on_batches(run, monkeypatch)
        result = run.train()

    gone = 0
    for batch in batches:
        assert len(batch) == 60 and batch["advantage"].shape == (60, 2)
        alive = batch["obs/alive"] != 0
        gone += np.count_nonzero(~alive)
        assert not batch["advantage"][~alive].any() and not batch["next_obs/rewards"][~alive].any()
        assert (batch["reward"] == batch["next_obs/rewards"].sum(axis=1)).all()
        # What an agent that arrives is paid is all that it gets.
        arrives = alive & (batch["next_obs/ended"] != 0)
        returns = batch["return_"][arrives]
        assert np.allclose(returns, 0.95, atol=1e-5)
    assert gone > 0 and result["train_iter"] > 10
