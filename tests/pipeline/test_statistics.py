"""Evaluations, checkpoints and videos see observations normalised as the collector's envs do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ding_like.agent.checkpoints import find_checkpoint
from ding_like.entry import eval_entry, serial_entry
from ding_like.envs import EnvFactory, create_env_manager
from ding_like.pipeline import training_loop
from ding_like.pipeline.statistics import WrapperStatistics, load_agent
from ding_like.utils.checkpoint import load_state

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
NORMALISED = ["env.wrappers=[{'type': 'obs_norm'}]", "env.n_evaluator_episode=2", "env.evaluator_env_num=2"]


def count(lanes: Any) -> list[float]:
    return [wrappers[0]["state"]["count"] for wrappers in lanes]


@pytest.fixture
def run(in_tmp: Path, no_pictures: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that trains some steps with normalised observations and returns (policy, counts by eval)."""
    seen: list[tuple[list[float], list[float]]] = []
    share = training_loop.share_statistics

    def spy(collector_env: Any, evaluator_env: Any) -> None:
        share(collector_env, evaluator_env)
        seen.append((count(collector_env.wrapper_states()), count(evaluator_env.wrapper_states())))

    monkeypatch.setattr(training_loop, "share_statistics", spy)

    def train(*overrides: str, **kwargs: Any) -> Any:
        seen.clear()
        given = [*NORMALISED, *overrides]
        serial_entry.serial_pipeline(str(CONFIG), overrides=given, exp_name="exp", max_env_step=700, **kwargs)
        return list(seen)

    return train


def test_evaluations_use_what_all_collecting_lanes_know_together(run: Any) -> None:
    seen = run()

    assert len(seen) >= 2
    for collector, evaluator in seen:
        assert evaluator == pytest.approx([sum(collector)] * len(evaluator))
    assert sum(seen[-1][0]) > sum(seen[0][0]) + 150


def test_a_checkpoint_brings_its_statistics_to_a_later_evaluation(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    path = find_checkpoint(Path("exp"), "last")
    saved = count(load_state(path)["env_wrappers"]["lanes"])
    evaluators = []
    play = eval_entry.play_episodes
    monkeypatch.setattr(eval_entry, "play_episodes", lambda env, *a, **k: evaluators.append(env) or play(env, *a, **k))

    eval_entry.eval(
        str(CONFIG),
        load_path=str(path),
        overrides=[*NORMALISED, "env.evaluator_env_num=1", "env.n_evaluator_episode=1"],
    )

    assert sum(saved) > 500
    assert count(evaluators[0].wrapper_states()) == pytest.approx([sum(saved)] * evaluators[0].num_lanes)


def test_a_run_from_a_checkpoint_goes_on_with_its_statistics(run: Any) -> None:
    run()
    path = find_checkpoint(Path("exp"), "last").resolve()
    saved = count(load_state(path)["env_wrappers"]["lanes"])

    seen = run(load_path=str(path))

    assert all(now > before for now, before in zip(seen[0][0], saved, strict=True))


def test_a_run_without_such_wrappers_saves_nothing_of_the_kind() -> None:
    env = create_env_manager(dict(type="base"), [EnvFactory(dict(type="gymnasium", env_id="CartPole-v1"))])

    assert WrapperStatistics(env).state_dict() == {}
    env.close()


def test_a_checkpoint_without_statistics_gives_none() -> None:
    class Mode:
        def state_dict(self) -> Any:
            return {"model": {}}

        def load_state_dict(self, state: Any) -> None:
            self.state = state

    mode = Mode()

    assert load_agent(mode, {"model": {}}) == []
    assert mode.state == {"model": {}}
