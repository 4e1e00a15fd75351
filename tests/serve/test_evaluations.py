"""What is served for a raw observation is what an evaluation of the run does at that observation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import requests

from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.envs import build_eval_env, build_policy
from ding_like.pipeline.statistics import load_agent
from ding_like.serve import Blueprint
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY
from ding_like.utils.seeding import make_rng
from ding_like.worker.evaluator.interaction import play_episodes
from tests.contracts.policy_cases import act
from tests.serve.runs import Run, ask, question, serving
from tests.serve.toy_envs import ToyEnv

SMALL = dict(model=dict(encoder_hidden_size_list=[8, 8]))
QAC = dict(model=dict(actor_head_hidden_size=8, critic_head_hidden_size=8))
STATISTICS = {"mean": np.array([1.0, -2.0, 3.0]), "var": np.array([4.0, 0.25, 9.0]), "count": 100.0, "is_frozen": False}
MORE = {"mean": np.array([0.0, 1.0, 5.0]), "var": np.array([1.0, 1.0, 2.0]), "count": 50.0, "is_frozen": False}
OBS_NORM = {"env_wrappers": {"lanes": [[{"type": "ObsNorm", "state": each}] for each in (STATISTICS, MORE)]}}
REWARD = {
    "type": "RewardNorm",
    "state": {"mean": np.array(0.0), "var": np.array(1.0), "count": 9.0, "is_frozen": False},
}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Return (observation, action) of the envs in the middle of all wrappers."""
    moves: list[tuple[Any, Any]] = []
    monkeypatch.setattr(ToyEnv, "played", moves)
    return moves


def evaluate(run: Run, path: Path) -> None:
    env = build_eval_env(run.cfg, seed=0)
    try:
        policy = build_policy(run.fitted, seed=0, modes=["eval"])
        statistics = load_agent(policy.eval_mode, path)
        if any(statistics):
            env.adopt_wrapper_states(statistics)
        play_episodes(env, adapt_eval_mode(policy.eval_mode), 4, rng=make_rng(0, "eval"))
    finally:
        env.close()


KINDS: dict[str, dict[str, Any]] = {
    "vectors": dict(policy="dqn", settings=SMALL),
    "actions from 3": dict(policy="dqn", settings=SMALL, action="from 3"),
    "wide numbers": dict(policy="dqn", settings=SMALL, obs="wide"),
    "numbers from 5": dict(policy="dqn", settings=SMALL, obs="number"),
    "several numbers": dict(policy="dqn", settings=SMALL, obs="numbers"),
    "bits": dict(policy="ppo", settings=SMALL, obs="bits", action="bits"),
    "several actions": dict(policy="ppo", settings=SMALL, action="several"),
    "dicts in dicts": dict(policy="dqn", settings=SMALL, obs="nested"),
    "box": dict(policy="sac", settings=QAC, action="box"),
    "box td3": dict(policy="td3", settings=QAC, action="box"),
    "statistics": dict(policy="dqn", settings=SMALL, wrappers=["obs_norm"], saved=OBS_NORM),
    "statistics of both": dict(
        policy="dqn",
        settings=SMALL,
        obs="wide",
        wrappers=["obs_norm", "reward_norm", dict(type="time_limit", max_episode_steps=4)],
        saved={"env_wrappers": {"lanes": [[REWARD, {"type": "ObsNorm", "state": STATISTICS}]]}},
    ),
    "flat": dict(policy="dqn", settings=SMALL, obs="nested", wrappers=[dict(type="FlattenObservation")]),
    "chosen and scaled": dict(
        policy="sac",
        settings=QAC,
        action="box",
        wrappers=[dict(type="obs_select", indices=[2, 0]), dict(type="rescale_action", min_action=-3, max_action=3)],
    ),
}


SLOW = {"actions from 3", "wide numbers", "numbers from 5", "several actions", "box td3", "statistics"}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in KINDS])
def test_served_actions_are_those_of_the_evaluator(kind: str, played: list[tuple[Any, Any]], tmp_path: Path) -> None:
    settings = dict(KINDS[kind])
    saved = settings.pop("saved", {})
    run = Run(tmp_path / "exp", **settings)
    evaluate(run, run.save(7, **saved))
    moves = list(played)

    with serving(run) as server:
        answers = [ask(server.url, obs)["action"] for obs, _ in moves]

    assert len(moves) >= 16
    for (_, action), answer in zip(moves, answers, strict=True):
        # The evaluator plays two envs at once, and a batch of two goes another way through matrix products than one.
        np.testing.assert_allclose(answer, action, rtol=1e-6, atol=1e-6)
        assert isinstance(answer, list) or type(answer) is int


def test_a_batch_is_normalised_as_its_rows_are(tmp_path: Path) -> None:
    run = Run(tmp_path / "exp", "sac", QAC, action="box", wrappers=["obs_norm"])
    run.save(7, **OBS_NORM)
    obs = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)

    with serving(run) as server:
        together, each = ask(server.url, obs)["action"], [ask(server.url, row)["action"] for row in obs]

    np.testing.assert_allclose(together, each, rtol=1e-5)


def test_each_checkpoint_brings_statistics_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path / "exp", "sac", QAC, action="box", wrappers=["obs_norm"])
    blueprint_of = Blueprint(run.folder)
    one = blueprint_of.make(run.save(7, **OBS_NORM))
    other_lanes = {"env_wrappers": {"lanes": [[{"type": "ObsNorm", "state": MORE}]]}}
    other = blueprint_of.make(run.save(7, name="other.pth.tar", **other_lanes))
    obs = np.array([1.0, 2.0, 3.0])

    first, second, again = (agent.act(*agent.read(question(obs))).action for agent in (one, other, one))

    normalised = (obs - MORE["mean"]) / np.sqrt(MORE["var"])
    actor = adapt_eval_mode(run.policy(7).eval_mode).actor
    np.testing.assert_allclose(second[0], act(actor, np.float32([normalised]), 1)["action"][0], rtol=1e-4)
    assert (first != second).all() and (first == again).all()


def test_a_checkpoint_without_the_statistics_that_observations_need_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path / "exp", "dqn", SMALL, wrappers=["obs_norm"])
    path = run.save(7)

    with pytest.raises(CheckpointError, match="no statistics of obs_norm"):
        Blueprint(run.folder).make(path)


STACKED = [dict(type="obs_select", indices=[2, 0]), dict(type="frame_stack", stack_size=2), "FlattenObservation"]


def test_wrappers_that_remember_are_refused_by_name(tmp_path: Path) -> None:
    run = Run(tmp_path / "exp", "dqn", SMALL, wrappers=STACKED)

    with pytest.raises(ConfigError, match=r"frame_stack may depend on earlier steps.*--client-wraps.*\(2, 2\)"):
        Blueprint(run.folder)


def test_clients_may_apply_wrappers_that_remember_and_the_server_does_the_rest(
    played: list[tuple[Any, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "exp", "dqn", SMALL, wrappers=STACKED)
    seen: list[Any] = []
    original = gymnasium.wrappers.FlattenObservation.observation

    def spy(self: Any, obs: Any) -> Any:
        seen.append(np.array(obs))
        return original(self, obs)

    with monkeypatch.context() as patched:
        patched.setattr(gymnasium.wrappers.FlattenObservation, "observation", spy)
        evaluate(run, run.save(7))
    stacks = [obs for obs in seen if obs.shape == (2, 2)]

    with serving(run, client_wraps=True) as server:
        answers = [ask(server.url, obs)["action"] for obs in stacks]
        told = requests.get(f"{server.url}/health", timeout=60).json()

    assert told["client_wrappers"] == ["obs_select", "frame_stack"] and told["wrappers"] == ["FlattenObservation"]
    assert told["obs"]["shape"] == [2, 2]
    actions = [int(action) for _, action in played]
    assert len(set(answers)) > 1, "else equal actions would say nothing"
    # Resets are observed as well, so the evaluator's actions are a sub-sequence of the answers.
    rest = iter(answers)
    assert sum(any(action == answer for answer in rest) for action in actions) == len(actions)


class Halved(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Observe halves."""

    def observation(self, observation: Any) -> Any:
        return observation / 2


class HalvedAlone(Halved):
    is_stateless = True


def test_a_wrapper_of_ones_own_is_applied_if_it_says_that_it_remembers_nothing(tmp_path: Path) -> None:
    for name, cls in (("test_serve_halved", Halved), ("test_serve_halved_alone", HalvedAlone)):
        if name not in ENV_WRAPPER_REGISTRY:
            ENV_WRAPPER_REGISTRY.register(name)(cls)
    unknown = Run(tmp_path / "unknown", "dqn", SMALL, wrappers=["test_serve_halved"])
    declared = Run(tmp_path / "declared", "dqn", SMALL, wrappers=["test_serve_halved_alone"])

    with pytest.raises(ConfigError, match="test_serve_halved may depend on earlier steps"):
        Blueprint(unknown.folder)

    assert Blueprint(declared.folder).make(declared.save(1)).wrappers == ["HalvedAlone"]
