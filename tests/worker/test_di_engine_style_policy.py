"""A policy in DI-engine's style is handed what DI-engine's own parts would hand it: dicts in, the same dicts out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from ding_like.envs.manager.base import BaseEnvManager
from ding_like.policy import Policy
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.worker import (
    AdvancedReplayBuffer,
    BaseLearner,
    EpisodeReplayBuffer,
    EpisodeSerialCollector,
    InteractionSerialEvaluator,
    NaiveReplayBuffer,
    SampleSerialCollector,
)

pytestmark = pytest.mark.usefixtures("in_tmp")

LENGTH = 3


class ArmEnv(gymnasium.Env[Any, Any]):
    """Count steps in a nested dict observation; reuse one `info`, as some envs do, and keep something in it."""

    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (2, 2), np.uint8),
            "arm": gymnasium.spaces.Dict({"angle": gymnasium.spaces.Box(-10, 10, (1,), np.float32)}),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._info: dict[str, Any] = {"position": np.zeros(2, np.float32), "tool": object()}

    def _obs(self) -> dict[str, Any]:
        return {"image": np.full((2, 2), self._t, np.uint8), "arm": {"angle": np.array([self._t], np.float32)}}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._t += 1
        self._info["position"][:] = self._t
        return self._obs(), 0.5 * self._t, False, self._t == LENGTH, self._info


class RecordingPolicy(Policy):
    """Write down what each of DI-engine's methods is given."""

    config = dict(type="recording", collect=dict(n_sample=6, unroll_len=1))

    def __init__(self, cfg: Any) -> None:
        self.seen: dict[str, list[Any]] = {"collect": [], "eval": [], "transition": [], "learn": [], "train_sample": []}
        super().__init__(cfg)

    def _build_model(self) -> torch.nn.Module:
        return torch.nn.Linear(1, 2)

    def _forward_learn(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        self.seen["learn"] += data
        return {"total_loss": 0.0, "priority": [1.0] * len(data)}

    def _forward_collect(self, data: dict[int, Any], **kwargs: Any) -> dict[int, dict[str, Any]]:
        self.seen["collect"] += data.values()
        logit = self._model(torch.stack([obs["arm"]["angle"] for obs in data.values()]))
        return {i: {"action": row.argmax(), "memory": {"h": row}} for i, row in zip(data, logit, strict=True)}

    def _forward_eval(self, data: dict[int, Any]) -> dict[int, dict[str, Any]]:
        self.seen["eval"] += data.values()
        return {i: {"action": torch.tensor(0)} for i in data}

    def _process_transition(self, obs: Any, policy_output: Any, timestep: Any) -> dict[str, Any]:
        self.seen["transition"].append((obs, policy_output, timestep))
        return {
            "obs": obs,
            "next_obs": timestep.obs,
            "action": policy_output["action"],
            "memory": policy_output["memory"],
            "reward": timestep.reward,
            "done": timestep.done,
        }

    def _get_train_sample(self, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.seen["train_sample"] += transitions
        return transitions


@pytest.fixture
def policy() -> RecordingPolicy:
    return RecordingPolicy(RecordingPolicy.default_config())


@pytest.fixture
def collector(policy: RecordingPolicy) -> Iterator[SampleSerialCollector]:
    collector = make_collector(policy)
    yield collector
    collector.close()


def make_collector(policy: RecordingPolicy) -> SampleSerialCollector:
    manager = BaseEnvManager([ArmEnv, ArmEnv])
    return SampleSerialCollector(SampleSerialCollector.default_config(), manager, policy.collect_mode)


def assert_is_nested(obs: Any) -> None:
    assert set(obs) == {"image", "arm"} and set(obs["arm"]) == {"angle"}
    assert float(obs["arm"]["angle"][0]) == float(obs["image"][0, 0]), "entries of two observations are mixed"


def test_nested_observations_reach_collect_eval_and_learn_as_the_env_gives_them(
    policy: RecordingPolicy, collector: SampleSerialCollector
) -> None:
    evaluator = InteractionSerialEvaluator(
        InteractionSerialEvaluator.default_config(), BaseEnvManager([ArmEnv]), policy.eval_mode
    )
    learner = BaseLearner({}, policy.learn_mode)

    learner.train(collector.collect())
    evaluator.eval(n_episode=1)
    learner.close()
    evaluator.close()

    for where in ("collect", "eval"):
        for obs in policy.seen[where]:
            assert_is_nested(obs)
            assert isinstance(obs["arm"]["angle"], torch.Tensor)
    for obs, _, timestep in policy.seen["transition"]:
        assert_is_nested(obs)
        assert_is_nested(timestep.obs)
        assert timestep.obs["arm"]["angle"] == obs["arm"]["angle"] + 1
    for rows in (policy.seen["train_sample"], policy.seen["learn"]):
        assert len(rows) == 6
        for row in rows:
            assert_is_nested(row["obs"])
            assert_is_nested(row["next_obs"])
            assert row["next_obs"]["arm"]["angle"] == row["obs"]["arm"]["angle"] + 1
            assert row["memory"]["h"].shape == (2,)
            assert isinstance(row["obs"]["image"], torch.Tensor)


@pytest.mark.parametrize("kind", [NaiveReplayBuffer, AdvancedReplayBuffer])
def test_nested_observations_come_out_of_a_buffer_as_they_went_in(
    kind: Any, policy: RecordingPolicy, collector: SampleSerialCollector
) -> None:
    learner, buffer = BaseLearner({}, policy.learn_mode), kind({})

    buffer.push(collector.collect(), 0)
    learner.train(buffer.sample(4, 0))
    buffer.close()
    learner.close()

    assert len(policy.seen["learn"]) == 4
    for row in policy.seen["learn"]:
        assert_is_nested(row["obs"])
        assert_is_nested(row["next_obs"])


def test_rows_that_a_script_takes_from_a_collection_have_nested_observations(collector: SampleSerialCollector) -> None:
    rows = collector.collect()

    assert_is_nested(rows[0]["obs"])
    assert_is_nested(rows.to_list()[0]["next_obs"])


def test_what_a_learner_hands_over_are_tensors_and_flags(
    policy: RecordingPolicy, collector: SampleSerialCollector
) -> None:
    learner = BaseLearner({}, policy.learn_mode)

    learner.train(collector.collect())
    learner.close()

    rows = policy.seen["learn"]
    assert torch.stack([row["action"] for row in rows]).shape == (6,)
    assert torch.stack([row["reward"] for row in rows]).shape == (6, 1)
    assert all(type(row["done"]) is bool for row in rows)


def test_evaluation_casts_observations_to_float32_as_di_engine_does(policy: RecordingPolicy) -> None:
    evaluator = InteractionSerialEvaluator(
        InteractionSerialEvaluator.default_config(), BaseEnvManager([ArmEnv]), policy.eval_mode
    )

    evaluator.eval(n_episode=1)
    evaluator.close()

    assert {obs["image"].dtype for obs in policy.seen["eval"]} == {torch.float32}


def test_a_transition_is_told_what_the_env_said_in_info(
    policy: RecordingPolicy, collector: SampleSerialCollector
) -> None:
    collector.collect(12)

    timesteps = [timestep for _, _, timestep in policy.seen["transition"]]
    assert len(timesteps) == 12
    for timestep in timesteps:
        assert timestep.info["position"].tolist() == [float(timestep.obs["image"][0, 0])] * 2
        assert type(timestep.info["tool"]) is object
        if timestep.done:
            assert timestep.info["eval_episode_return"] == 0.5 + 1.0 + 1.5
            assert timestep.info["TimeLimit.truncated"] is True
        else:
            assert "eval_episode_return" not in timestep.info


def test_a_transition_is_told_the_reward_in_the_shape_of_di_engines_envs(
    policy: RecordingPolicy, collector: SampleSerialCollector
) -> None:
    batch = collector.collect()

    for _, _, timestep in policy.seen["transition"]:
        assert (timestep.reward.shape, timestep.reward.dtype) == ((1,), np.float32)
        assert timestep.reward[0] == 0.5 * timestep.obs["image"][0, 0]
    assert batch["reward"].shape == (6, 1)


def test_infos_of_open_stretches_survive_a_resume(policy: RecordingPolicy, tmp_path: Path) -> None:
    policy.set_attribute("nstep", 2)  # looks ahead: rows of open episodes wait
    first = make_collector(policy)
    first.collect(6)
    first._loop.step({})
    save_state(tmp_path / "state", first.state_dict())
    first.close()
    policy.seen["transition"] = []

    second = make_collector(policy)
    second.load_state_dict(load_state(tmp_path / "state"))
    second.collect(6)
    second.close()

    steps = [int(timestep.info["position"][0]) for _, _, timestep in policy.seen["transition"]]
    assert steps == [1, 2, 3, 1, 2, 3]
    assert isinstance(policy.seen["transition"][0][2].info["tool"], str), "what a file cannot hold is text"


def test_rows_of_another_style_are_dropped_when_a_policy_takes_over(
    policy: RecordingPolicy, collector: SampleSerialCollector
) -> None:
    collector._loop.step({})
    assert len(collector._loop.rollout) == 2

    collector.reset_policy(policy.collect_mode)
    assert len(collector._loop.rollout) == 2, "one of the same style goes on"
    collector._loop.use_actor(collector._policy.actor)

    assert (len(collector._loop.rollout), collector.dropped_steps) == (0, 2)


def test_whole_episodes_hold_what_can_be_stored_and_saved(policy: RecordingPolicy, tmp_path: Path) -> None:
    collector = EpisodeSerialCollector(
        EpisodeSerialCollector.default_config(), BaseEnvManager([ArmEnv, ArmEnv]), policy.collect_mode
    )
    buffer = EpisodeReplayBuffer({})

    episodes = collector.collect(n_episode=4)
    buffer.push(list(episodes), 0)
    buffer.save_data(str(tmp_path / "episodes"))
    buffer.close()
    collector.close()

    assert len(episodes) == 4
    for episode in episodes:
        assert len(episode) == LENGTH and episode[-1]["done"] and not episode[0]["done"]
        assert_is_nested(episode[0]["obs"])
    assert policy.seen["transition"] == [], "what is made of episodes is up to the caller"


def test_whole_episodes_become_train_samples_where_that_is_asked_for(policy: RecordingPolicy) -> None:
    cfg = {**EpisodeSerialCollector.default_config(), "get_train_sample": True}
    collector = EpisodeSerialCollector(cfg, BaseEnvManager([ArmEnv, ArmEnv]), policy.collect_mode)

    samples = collector.collect(n_episode=2)
    collector.close()

    assert len(samples) == 2 * LENGTH
    infos = [timestep.info for _, _, timestep in policy.seen["transition"]]
    assert [info["position"].tolist() for info in infos] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]] * 2
