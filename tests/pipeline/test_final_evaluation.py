"""What a run says of its last model comes from episodes that no evaluation of the run has played."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import resume_pipeline, serial_pipeline
from ding_like.report.experiment import read_run
from ding_like.utils.checkpoint import load_state
from ding_like.worker.evaluator import InteractionSerialEvaluator

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


def configs(**env: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    main = dict(
        exp_name="exp",
        env=dict(
            env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9, **env
        ),
        policy=dict(
            model=dict(encoder_hidden_size_list=[8]),
            learn=dict(update_per_collect=2, batch_size=16),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=100_000)),
        ),
    )
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))


def evaluations(exp: str = "exp") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in Path(exp, "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["source"] == "evaluator"]


def worth(monkeypatch: pytest.MonkeyPatch, *means: float) -> None:
    """Have the evaluations of a run find these mean returns, one after the other."""
    found, play = list(means), InteractionSerialEvaluator.play

    def valued(self: Any, n_episode: int, **kwargs: Any) -> Any:
        result = play(self, n_episode, **kwargs)
        return dataclasses.replace(result, returns=[found.pop(0)] * len(result.returns))

    monkeypatch.setattr(InteractionSerialEvaluator, "play", valued)


def test_the_last_model_is_judged_by_fresh_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[list[int]] = []
    play = InteractionSerialEvaluator.play

    def watched(self: Any, n_episode: int, **kwargs: Any) -> Any:
        reset = self.env.reset
        monkeypatch.setattr(self.env, "reset", lambda *args, **given: (seeds.append(given["seeds"]), reset(**given)))
        result = play(self, n_episode, **kwargs)
        monkeypatch.setattr(self.env, "reset", reset)
        return result

    monkeypatch.setattr(InteractionSerialEvaluator, "play", watched)
    main, create = configs()
    main["policy"]["eval"]["evaluator"]["eval_freq"] = 20

    serial_pipeline((main, create), seed=0, max_env_step=300)

    *earlier, last = seeds
    assert len(earlier) >= 3 and len(json.loads(Path("exp/result.json").read_text())["eval_value_raw"]) == 20
    assert not {seed for each in earlier for seed in each} & set(last)


@pytest.mark.parametrize(("last", "is_best"), [(20.0, True), (10.0, True), (9.0, False)])
def test_the_closing_evaluation_counts_for_the_best_model(
    monkeypatch: pytest.MonkeyPatch, last: float, is_best: bool
) -> None:
    worth(monkeypatch, 10.0, last)

    serial_pipeline(configs(), seed=0, max_env_step=100)

    result = json.loads(Path("exp/result.json").read_text())
    best = load_state("exp/ckpt/ckpt_best.pth.tar")
    assert (best["last_iter"], best["last_step"]) == ((result["train_iter"], result["env_step"]) if is_best else (0, 0))
    assert result["train_iter"] > 0 and result["best_eval"] == max(10.0, last) and result["eval_value"] == last
    assert result["stop"] is False


def test_the_closing_evaluation_is_the_last_line_and_the_curves_last_point(monkeypatch: pytest.MonkeyPatch) -> None:
    worth(monkeypatch, 10.0, 12.0)

    serial_pipeline(configs(), seed=0, max_env_step=100)

    result, (first, last) = json.loads(Path("exp/result.json").read_text()), evaluations()
    assert (first["env_step"], first["reward_mean"]) == (0, 10.0)
    assert (last["env_step"], last["train_iter"]) == (result["env_step"], result["train_iter"])
    assert last["reward_mean"] == 12.0 and last["episode_count"] == 20
    assert read_run(Path("exp")).evaluation.mean[-1] == 12.0


def test_a_finished_run_that_goes_on_takes_its_closing_evaluation_back(monkeypatch: pytest.MonkeyPatch) -> None:
    worth(monkeypatch, 10.0, 12.0, 11.0)
    serial_pipeline(configs(), seed=0, max_env_step=100)

    resume_pipeline("exp", max_env_step=200)

    assert [line["reward_mean"] for line in evaluations()] == [10.0, 11.0]
    result = json.loads(Path("exp/result.json").read_text())
    assert result["best_eval"] == 11.0 and load_state("exp/ckpt/ckpt_best.pth.tar")["last_step"] == result["env_step"]


def test_a_run_that_goes_on_and_gets_worse_has_the_best_model_of_one_that_never_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worth(monkeypatch, 10.0, 12.0, 9.0)
    serial_pipeline(configs(), seed=0, max_env_step=100)

    resume_pipeline("exp", max_env_step=200)

    assert load_state("exp/ckpt/ckpt_best.pth.tar")["last_iter"] == 0
    assert json.loads(Path("exp/result.json").read_text())["best_eval"] == 10.0


def test_an_evaluation_that_stops_the_run_is_not_the_closing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    main, create = configs()
    main["env"]["stop_value"], main["policy"]["eval"]["evaluator"]["eval_freq"] = 15.0, 10
    worth(monkeypatch, 10.0, 16.0, 14.0)

    serial_pipeline((main, create), seed=0, max_env_step=1000)

    result = json.loads(Path("exp/result.json").read_text())
    assert result["stop"] is True and result["eval_value"] == 14.0 and result["best_eval"] == 16.0
