"""What is served for a raw observation is what an evaluation of the run does at that observation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import requests

from ding_like.agent.wrappers import FedEnv
from ding_like.data.rows import adapt_eval_mode
from ding_like.envs.wrappers import wrap
from ding_like.errors import CheckpointError, ConfigError
from ding_like.serve import Blueprint
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY
from tests.agent.played import EPISODE, OBS_NORM, OTHER_STATISTICS, QAC, SMALL, evaluate, saved_run
from tests.contracts.policy_cases import act
from tests.serve.runs import Run, ask, question, serving
from tests.serve.toy_envs import ACTIONS_OF, OBSERVATIONS, ToyEnv


@pytest.fixture(autouse=True)
def _no_moves_left() -> Iterator[None]:
    yield
    ToyEnv.played.clear()


# The agent that answers is that of ding_like.load, whose tests have every kind.
@pytest.mark.parametrize("kind", ["statistics of both", "dicts in dicts", "chosen and scaled", "hybrid"])
def test_served_actions_are_those_of_the_evaluator(kind: str, tmp_path: Path) -> None:
    run, path = saved_run(tmp_path / "exp", kind)
    moves = evaluate(run, path)

    with serving(run, "best") as server:
        answers = [ask(server.url, obs)["action"] for obs, _ in moves]

    assert len(moves) >= 12
    for (_, action), answer in zip(moves, answers, strict=True):
        expected = np.hstack(action) if isinstance(action, tuple) else action
        np.testing.assert_allclose(answer, expected, rtol=1e-6, atol=1e-6)
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
    other_lanes = {"env_wrappers": {"lanes": [[{"type": "ObsNorm", "state": OTHER_STATISTICS}]]}}
    other = blueprint_of.make(run.save(7, name="other.pth.tar", **other_lanes))
    obs = np.array([1.0, 2.0, 3.0])

    first, second, again = (agent.act(*agent.read(question(obs))).action for agent in (one, other, one))

    normalised = (obs - OTHER_STATISTICS["mean"]) / np.sqrt(OTHER_STATISTICS["var"])
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


def test_clients_may_apply_wrappers_that_remember_and_the_server_does_the_rest(tmp_path: Path) -> None:
    run = Run(tmp_path / "exp", "dqn", SMALL, wrappers=STACKED)
    moves = evaluate(run, run.save(7))
    fed = FedEnv(OBSERVATIONS["vector"], ACTIONS_OF["discrete"])
    client = wrap(fed, STACKED[:2])
    answers: list[int] = []

    with serving(run, client_wraps=True) as server:
        for step, (fed.fed, _) in enumerate(moves):
            obs = client.reset()[0] if step % EPISODE == 0 else client.step(answers[-1])[0]
            answers.append(ask(server.url, obs)["action"])
        found = requests.get(f"{server.url}/health", timeout=60).json()

    assert found["client_wrappers"] == ["obs_select", "frame_stack"] and found["wrappers"] == ["FlattenObservation"]
    assert found["obs"]["shape"] == [2, 2]
    assert answers == [action for _, action in moves] and len(set(answers)) > 1, "equal actions would show nothing"


class Halved(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Wrapper that observes halves."""

    def observation(self, observation: Any) -> Any:
        return observation / 2


class HalvedAlone(Halved):
    is_stateless = True


def test_a_wrapper_of_the_user_is_applied_if_it_is_declared_stateless(tmp_path: Path) -> None:
    for name, cls in (("test_serve_halved", Halved), ("test_serve_halved_alone", HalvedAlone)):
        if name not in ENV_WRAPPER_REGISTRY:
            ENV_WRAPPER_REGISTRY.register(name)(cls)
    unknown = Run(tmp_path / "unknown", "dqn", SMALL, wrappers=["test_serve_halved"])
    declared = Run(tmp_path / "declared", "dqn", SMALL, wrappers=["test_serve_halved_alone"])

    with pytest.raises(ConfigError, match="test_serve_halved may depend on earlier steps"):
        Blueprint(unknown.folder)

    assert Blueprint(declared.folder).make(declared.save(1)).wrappers == ["HalvedAlone"]
