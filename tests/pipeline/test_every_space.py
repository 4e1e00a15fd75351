"""Each kind of space goes through env manager, loop, policy and buffer in a real run, and arrives unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.data.batch import TransitionBatch
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError, EnvError
from ding_like.worker import BaseLearner
from tests.pipeline.space_env import SpaceEnv, make_space_env

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 36, 36), np.uint8)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "float32": VECTOR,
    "float64": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "uint8": spaces.Box(0, 255, (5,), np.uint8),
    "int": spaces.Box(-9, 9, (4,), np.int64),
    "matrix": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    "image": IMAGE,
    "binary": spaces.MultiBinary(4),
    "discrete": spaces.Discrete(6),
    "discrete from 3": spaces.Discrete(6, start=3),
    "multi-discrete": spaces.MultiDiscrete([3, 5]),
    "multi-discrete from 1": spaces.MultiDiscrete([3, 5], start=[1, -1]),
    "dict": spaces.Dict({"position": VECTOR, "goal": spaces.Discrete(4, start=2), "bits": spaces.MultiBinary(2)}),
    "nested": spaces.Dict(
        {"arm": spaces.Dict({"angle": VECTOR, "joint": spaces.MultiDiscrete([2, 2])}), "x.y": VECTOR}
    ),
    "image and more": spaces.Dict({"camera": IMAGE, "speed": spaces.Box(-1.0, 1.0, (), np.float64)}),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "discrete from 5": spaces.Discrete(3, start=5),
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
    # 0.1 as a float32 is above 0.1.
    "box of float64": spaces.Box(np.array([-0.1, 0.3]), np.array([0.1, 0.7]), dtype=np.float64),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-discrete from 1": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "one multi-discrete": spaces.MultiDiscrete([3]),
    "multi-binary": spaces.MultiBinary(3),
}
# A choice with its parameters: what the env takes.
HYBRID: dict[str, spaces.Space[Any]] = {
    "flat": spaces.Tuple(
        [spaces.Discrete(3, start=2), spaces.Box(0.0, 1.0, (1,)), spaces.Box(-2.0, 2.0, (2, 1), np.float64)]
    ),
    "nested": spaces.Tuple([spaces.Discrete(2), spaces.Tuple([spaces.Box(0.0, 1.0, (1,)), spaces.Box(5, 9, (1,))])]),
    "dict": spaces.Dict(action_type=spaces.Discrete(3), action_args=spaces.Box(-0.1, 0.7, (2,), np.float64)),
}
UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float32)
# Every way to choose (of values, on-policy, of bounded boxes, of choices with parameters) and every kind of action.
SUITE = [("dqn", "discrete from 5"), ("sac", "box of float64")]
SUITE += [("ppo", name) for name in ("box of float64", "multi-discrete from 1", "multi-binary")]
OTHERS = [
    ("dqn", "discrete"),
    ("ppo", "discrete"),
    ("ppo", "discrete from 5"),
    ("ppo", "box"),
    ("ppo", "multi-discrete"),
]
OTHERS += [("ppo", "one multi-discrete"), ("discrete_sac", "discrete from 5")]
OTHERS += [
    (policy, name) for policy in ("a2c", "ppo_offpolicy", "pg", "ppg") for name in ("multi-discrete from 1", "box")
]
OTHERS += [(policy, "box of float64") for policy in ("ddpg", "td3")]
RANDOM_FIRST = ("pdqn", "dqn", "ddpg", "td3", "sac", "discrete_sac")


@pytest.fixture
def trained(in_tmp: Path, no_pictures: None, monkeypatch: pytest.MonkeyPatch) -> list[TransitionBatch]:
    """Return the batches that learners are given from now on; no env has played yet."""
    batches: list[TransitionBatch] = []
    train = BaseLearner.train

    def remember(self: BaseLearner, data: TransitionBatch, *args: Any) -> None:
        batches.append(data)
        train(self, data, *args)

    monkeypatch.setattr(BaseLearner, "train", remember)
    monkeypatch.setattr(SpaceEnv, "happened", [])
    monkeypatch.setattr(SpaceEnv, "faults", [])
    return batches


def run(policy: str, observation_space: Any, action_space: Any, *, steps: int = 100, manager: str = "base") -> Any:
    # env_setting brings the envs: the id only makes the config whole.
    env = dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9)
    learn: dict[str, Any] = dict(batch_size=16)
    if policy in RANDOM_FIRST:
        learn["update_per_collect"] = 1
    main = dict(
        exp_name="exp",
        env=env,
        policy=dict(
            learn=learn,
            collect=dict(n_sample=20),
            eval=dict(evaluator=dict(eval_freq=1000)),
            **(dict(random_collect_size=20) if policy in RANDOM_FIRST else {}),
        ),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type=manager), policy=dict(type=policy))
    make = partial(make_space_env, observation_space, action_space)
    lanes = [dict(length=length) for length in (3, 7)]
    pipeline = serial_pipeline_onpolicy if policy in ("ppo", "a2c", "pg", "ppg") else serial_pipeline
    return pipeline((main, create), seed=0, max_env_step=steps, env_setting=(make, lanes, lanes[:1]))


def as_held(space: Any, value: Any, path: str) -> dict[str, Any]:
    """Return an env's observation as columns by name, floats as float32, counted from 0."""
    if isinstance(space, spaces.Dict):
        held: dict[str, Any] = {}
        for key, inner in space.spaces.items():
            held |= as_held(inner, value[key], f"{path}/{key}")
        return held
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return {path: array.astype(np.float32)}
    return {path: array - getattr(space, "start", 0)}


def assert_rows_are_what_happened(batches: list[TransitionBatch], observation_space: Any, action_space: Any) -> None:
    assert batches and not SpaceEnv.faults, SpaceEnv.faults[:3]
    for batch in (batches[0], batches[-1]):
        names = set(batch.columns)
        for row in batch:
            event = SpaceEnv.happened[int(row["reward"])]
            columns = as_held(observation_space, event.obs, "obs") | as_held(
                observation_space, event.next_obs, "next_obs"
            )
            assert {name for name in names if name.startswith(("obs", "next_obs"))} == set(columns)
            for name, value in columns.items():
                assert np.array_equal(row[name], value) and row[name].dtype.kind == value.dtype.kind, name
            action = np.asarray(event.action) - getattr(action_space, "start", 0)
            assert np.allclose(row["action"], action, rtol=1e-6) and row["terminated"] == event.terminated


@pytest.mark.parametrize(
    ("policy", "actions"), [*SUITE, *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS)]
)
def test_actions_reach_the_env_and_the_learner(policy: str, actions: str, trained: list[TransitionBatch]) -> None:
    run(policy, VECTOR, ACTIONS[actions])

    assert_rows_are_what_happened(trained, VECTOR, ACTIONS[actions])


def flat(action: Any) -> np.ndarray:
    """Return an env's own hybrid action as a row."""
    ordered = [action["action_type"], action["action_args"]] if isinstance(action, dict) else action
    leaves = [leaf for part in ordered for leaf in (part if isinstance(part, tuple) else (part,))]
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


@pytest.mark.parametrize(
    ("policy", "actions"), [("pdqn", "flat"), ("pdqn", "dict"), ("ppo", "nested"), ("ppo", "dict")]
)
def test_choices_with_parameters_reach_the_env_and_the_learner(
    policy: str, actions: str, trained: list[TransitionBatch]
) -> None:
    run(policy, VECTOR, HYBRID[actions])

    assert trained and not SpaceEnv.faults, SpaceEnv.faults[:3]
    start = 2 if actions == "flat" else 0
    for row in trained[-1]:
        taken = flat(SpaceEnv.happened[int(row["reward"])].action)
        assert row["action"][0] == taken[0] - start
        assert np.allclose(row["action"][1:], taken[1:], rtol=1e-6)


IN_SUITE = {
    ("dqn", "uint8"),
    ("dqn", "discrete from 3"),
    ("dqn", "nested"),
    ("dqn", "float64"),
    ("ppo", "image and more"),
}
IN_SUITE |= {("ppo", "multi-discrete from 1"), ("sac", "dict")}


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        pytest.param(policy, name, marks=() if (policy, name) in IN_SUITE else pytest.mark.slow)
        for policy in ("dqn", "ppo", "sac")
        for name in OBSERVATIONS
    ],
)
def test_observations_reach_the_learner(policy: str, name: str, trained: list[TransitionBatch]) -> None:
    actions = ACTIONS["box" if policy == "sac" else "discrete"]

    run(policy, OBSERVATIONS[name], actions, steps=60)

    assert_rows_are_what_happened(trained, OBSERVATIONS[name], actions)


@pytest.mark.parametrize(
    ("policy", "actions", "others"),
    [
        ("dqn", "discrete from 5", {"board": VECTOR}),
        ("ppo", "multi-discrete from 1", {"board": VECTOR, "turn": spaces.Discrete(2)}),
        pytest.param("ppo", "discrete", {"board": VECTOR}, marks=pytest.mark.slow),
        pytest.param("a2c", "one multi-discrete", {"board": VECTOR}, marks=pytest.mark.slow),
        pytest.param("ppo_offpolicy", "multi-discrete", {"board": VECTOR}, marks=pytest.mark.slow),
    ],
)
def test_no_action_is_taken_that_a_mask_forbids(
    policy: str, actions: str, others: Mapping[str, Any], trained: list[TransitionBatch]
) -> None:
    space = ACTIONS[actions]
    num_choices = int(getattr(space, "n", 0) or np.sum(getattr(space, "nvec", 0)))
    observed = spaces.Dict({**others, "action_mask": spaces.MultiBinary(num_choices)})

    run(policy, observed, space)

    assert_rows_are_what_happened(trained, observed, space)


def test_actions_without_bounds_are_taken(trained: list[TransitionBatch]) -> None:
    run("ppo", VECTOR, UNBOUNDED)

    assert_rows_are_what_happened(trained, VECTOR, UNBOUNDED)


def test_observations_that_nothing_holds_are_refused_with_a_way_out(trained: list[TransitionBatch]) -> None:
    refused = {
        "Text": spaces.Text(8),
        "Graph": spaces.Graph(VECTOR, None),
        "Sequence": spaces.Sequence(VECTOR),
        "Tuple": spaces.Tuple([VECTOR, VECTOR]),
        "Text at 'words'": spaces.Dict({"words": spaces.Text(8), "x": VECTOR}),
    }
    for kind, space in refused.items():
        with pytest.raises((ConfigError, EnvError), match=rf"observation space {kind}.*[wW]rapper"):
            run("ppo", space, ACTIONS["discrete"])
    assert not trained and not SpaceEnv.happened


def test_actions_that_nothing_chooses_are_refused_with_a_way_out(trained: list[TransitionBatch]) -> None:
    for space in (
        spaces.Text(8),
        spaces.Tuple([spaces.Discrete(2), VECTOR, spaces.Discrete(2)]),
        spaces.Tuple([spaces.Discrete(2), VECTOR, VECTOR, VECTOR]),
        spaces.Dict({"a": spaces.Discrete(2)}),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.MultiBinary([2, 2]),
        spaces.MultiDiscrete([[2, 2], [3, 3]]),
        spaces.Box(-1.0, 1.0, (2, 2)),
        spaces.Box(0, 3, (2,), np.int64),
    ):
        with pytest.raises((ConfigError, EnvError), match=rf"(?s)action space.*{type(space).__name__}.*wrapper"):
            run("ppo", VECTOR, space)
    assert not trained and not SpaceEnv.happened


def test_policies_and_choices_with_parameters_that_do_not_fit_name_others(
    trained: list[TransitionBatch],
) -> None:
    for policy in ("dqn", "a2c", "ppg", "ppo_offpolicy", "sac", "impala"):
        with pytest.raises(ConfigError, match=r"create_config.policy.type: pdqn, ppo\).*env wrapper"):
            run(policy, VECTOR, HYBRID["dict"])
    with pytest.raises(ConfigError, match=r"policy 'pdqn' takes hybrid \(a choice with parameters.*dqn"):
        run("pdqn", VECTOR, ACTIONS["discrete"])
    assert not trained


@pytest.mark.parametrize(
    ("policy", "actions", "others"),
    [
        ("dqn", "box", ["ddpg", "ppo", "sac", "td3"]),
        ("sac", "discrete", ["a2c", "dqn", "ppo"]),
    ],
)
def test_a_policy_that_cannot_choose_an_action_names_some_that_can(
    policy: str, actions: str, others: list[str], trained: list[TransitionBatch]
) -> None:
    with pytest.raises(ConfigError) as refused:
        run(policy, VECTOR, ACTIONS[actions])

    message = str(refused.value)
    named = message.partition("create_config.policy.type: ")[2].partition(")")[0].split(", ")
    assert f"policy '{policy}'" in message and str(ACTIONS[actions]) in message
    assert set(others) <= set(named) and policy not in named
    assert not trained


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["subprocess", "gym_vector"])
@pytest.mark.parametrize("name", ["discrete from 3", "nested", "image and more"])
def test_observations_take_the_same_way_through_other_managers(
    name: str, manager: str, trained: list[TransitionBatch]
) -> None:
    policy = run("ppo", OBSERVATIONS[name], ACTIONS["multi-discrete from 1"], steps=60, manager=manager)

    held = {
        column: np.asarray(value)
        for column, value in as_held(OBSERVATIONS[name], OBSERVATIONS[name].sample(), "obs").items()
    }
    for column, value in held.items():
        assert trained[0][column].shape[1:] == value.shape, policy
        assert trained[0][column].min() >= (0 if value.dtype.kind in "iu" else -np.inf)
