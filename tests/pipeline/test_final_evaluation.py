"""What a run says of its last model comes from episodes that no evaluation of the run has played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import serial_pipeline
from ding_like.worker.evaluator.interaction import InteractionSerialEvaluator


def test_the_last_model_is_judged_by_fresh_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ding_like.entry.serial_entry.write_pictures", lambda *args, **kwargs: None)
    seeds: list[list[int]] = []
    play = InteractionSerialEvaluator.play

    def watched(self: Any, n_episode: int, **kwargs: Any) -> Any:
        reset = self.env.reset
        monkeypatch.setattr(self.env, "reset", lambda *args, **given: (seeds.append(given["seeds"]), reset(**given)))
        result = play(self, n_episode, **kwargs)
        monkeypatch.setattr(self.env, "reset", reset)
        return result

    monkeypatch.setattr(InteractionSerialEvaluator, "play", watched)
    main = dict(
        exp_name="exp",
        env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
        policy=dict(
            model=dict(encoder_hidden_size_list=[8]),
            learn=dict(update_per_collect=2, batch_size=16),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=20)),
        ),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))

    serial_pipeline((main, create), seed=0, max_env_step=300)

    *earlier, last = seeds
    assert len(earlier) >= 3 and len(json.loads(Path("exp/result.json").read_text())["eval_value_raw"]) == 20
    assert not {seed for each in earlier for seed in each} & set(last)
