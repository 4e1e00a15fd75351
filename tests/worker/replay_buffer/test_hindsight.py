"""Hindsight: goals that the same episode achieved, rewards that follow from them, whatever rows there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.worker import create_buffer
from ding_like.worker.replay_buffer.hindsight import HindsightReplayBuffer
from tests.worker.replay_buffer.goal_env import LineEnv

pytestmark = pytest.mark.usefixtures("in_tmp")

Array = np.ndarray
STRATEGIES = ("future", "final", "episode")
ALL = 1e12  # k with which no row keeps its goal


def make_buffer(size: int = 1000, *, seed: int = 0, make_env: Any = LineEnv, **cfg: Any) -> HindsightReplayBuffer:
    section = {"type": "her", "replay_buffer_size": size, **cfg}
    buffer = create_buffer(section, make_env=make_env, rng=np.random.default_rng(seed))
    assert isinstance(buffer, HindsightReplayBuffer)
    return buffer


class Lanes:
    """Rows of lanes that walk at random, one batch after another, with episodes of all lengths; `uid` names a row."""

    def __init__(
        self, num_lanes: int, *, seed: int, drop: float = 0.0, flat: bool = False, first_lane: int = 0
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._drop, self._flat, self._first = drop, flat, first_lane
        self._num = num_lanes
        self._uid = first_lane * 10**6
        self._episode = np.arange(num_lanes)
        self._next_episode = num_lanes
        self._step = np.zeros(num_lanes, np.int64)
        self._place = np.zeros((num_lanes, 2), np.float32)
        self._goal = self._rng.integers(-2, 3, (num_lanes, 2)).astype(np.float32)

    def rows(self) -> list[dict[str, Any]]:
        """Step some lanes in any order; rows of an episode that breaks off are not among them."""
        found = []
        for lane in self._rng.permutation(self._num)[: self._rng.integers(1, self._num + 1)]:
            obs = self._place[lane].copy()
            self._place[lane, self._rng.integers(2)] += self._rng.choice((-1, 1))
            goal, achieved = self._goal[lane].copy(), self._place[lane].copy()
            terminated = bool((achieved == goal).all())
            truncated = not terminated and self._rng.random() < 0.1
            row = dict(
                lane=np.int64(self._first + lane),
                episode_id=np.int64(self._episode[lane]),
                step=np.int64(self._step[lane]),
                uid=np.int64(self._uid),
                action=np.int64(0),
                reward=np.float32(terminated - 1.0),
                terminated=np.bool_(terminated),
                truncated=np.bool_(truncated),
                **self._obs("obs", obs, goal),
                **self._obs("next_obs", achieved, goal),
            )
            self._uid += 1
            self._step[lane] += 1
            broke = self._rng.random() < self._drop
            if not broke:
                found.append(row)
            if terminated or truncated or broke:
                self._begin(int(lane))
        return found

    def batch(self) -> TransitionBatch:
        while not (rows := self.rows()):
            pass
        return batch_of(rows)

    def _obs(self, prefix: str, place: Array, goal: Array) -> dict[str, Array]:
        if self._flat:
            return {prefix: np.concatenate([place, goal])}
        return {f"{prefix}/observation": place, f"{prefix}/achieved_goal": place, f"{prefix}/desired_goal": goal}

    def _begin(self, lane: int) -> None:
        self._episode[lane] = self._next_episode
        self._next_episode += 1
        self._step[lane] = 0
        self._place[lane] = 0
        self._goal[lane] = self._rng.integers(-2, 3, 2)


def batch_of(rows: list[dict[str, Any]]) -> TransitionBatch:
    return TransitionBatch({name: np.stack([row[name] for row in rows]) for name in rows[0]})


def stretches(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield, the slow and obvious way, the unbroken stretches of episodes among stored rows, oldest first."""
    by_episode: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: int(row["uid"])):
        by_episode.setdefault((int(row["lane"]), int(row["episode_id"])), []).append(row)
    for episode in by_episode.values():
        stretch = [episode[0]]
        for row in episode[1:]:
            if row["step"] != stretch[-1]["step"] + 1:
                yield stretch
                stretch = []
            stretch.append(row)
        yield stretch


def possible_goals(rows: list[dict[str, Any]], strategy: str) -> dict[int, set[tuple[float, float]]]:
    """Return, by `uid`, the goals that a row may get, by looping over rows."""
    goals: dict[int, set[tuple[float, float]]] = {}
    for stretch in stretches(rows):
        achieved = [tuple(row["next_obs/achieved_goal"].tolist()) for row in stretch]
        for i, row in enumerate(stretch):
            chosen = {"future": achieved[i:], "final": achieved[-1:], "episode": achieved}[strategy]
            goals[int(row["uid"])] = set(chosen)
    return goals


def stored_rows(buffer: HindsightReplayBuffer) -> list[dict[str, Any]]:
    """Return the rows of a buffer, as they were pushed."""
    data = buffer.state_dict()["data"]
    return [{name: column[i] for name, column in data.items()} for i in range(len(data["uid"]))]


def straight_episode(length: int, *, goal: float = -9.0, episode: int = 0) -> TransitionBatch:
    """Return rows of an episode whose step t achieves (t + 1, 0)."""
    place = np.zeros((length + 1, 2), np.float32)
    place[:, 0] = np.arange(length + 1)
    wanted = np.full((length, 2), goal, np.float32)
    columns = {"obs/observation": place[:-1], "obs/achieved_goal": place[:-1], "obs/desired_goal": wanted}
    columns |= {"next_obs/observation": place[1:], "next_obs/achieved_goal": place[1:], "next_obs/desired_goal": wanted}
    return TransitionBatch(
        dict(
            lane=np.zeros(length, np.int64),
            episode_id=np.full(length, episode, np.int64),
            step=np.arange(length),
            uid=np.arange(length),
            action=np.zeros(length, np.int64),
            reward=np.full(length, -1.0, np.float32),
            terminated=np.zeros(length, bool),
            truncated=np.arange(length) == length - 1,
            **{name: column.copy() for name, column in columns.items()},
        )
    )


def filled(strategy: str, *, size: int, pushes: int, drop: float = 0.0, num_lanes: int = 3, **cfg: Any) -> Any:
    buffer = make_buffer(size, strategy=strategy, **cfg)
    lanes = Lanes(num_lanes, seed=1, drop=drop)
    for _ in range(pushes):
        buffer.push(lanes.batch(), 0)
    return buffer


@pytest.mark.parametrize(
    ("strategy", "size", "drop"),
    [*((strategy, 300, 0.15) for strategy in STRATEGIES), ("future", 800, 0.0), ("future", 90, 0.05)],
)
def test_goals_are_those_that_a_loop_over_episodes_finds(strategy: str, size: int, drop: float) -> None:
    buffer = filled(strategy, size=size, pushes=300, drop=drop, k=ALL)
    goals = possible_goals(stored_rows(buffer), strategy)
    seen: dict[int, set[tuple[float, float]]] = {uid: set() for uid in goals}

    for _ in range(10):
        sample = buffer.sample(2500, 0, replace=True)
        for uid, goal in zip(sample["uid"].tolist(), sample["obs/desired_goal"].tolist(), strict=True):
            seen[uid].add(tuple(goal))

    assert all(found <= goals[uid] for uid, found in seen.items())
    # Most of them come up, of rows that are drawn thirty times.
    assert sum(map(len, seen.values())) > 0.7 * sum(map(len, goals.values()))


def test_each_later_step_is_as_likely_to_give_the_goal_as_any_other() -> None:
    buffer = make_buffer(strategy="future", k=ALL)
    episode = straight_episode(10)
    buffer.push(episode, 0)
    counts = np.zeros((10, 10), int)

    for _ in range(10):
        sample = buffer.sample(3000, 0, replace=True)
        np.add.at(counts, (sample["step"], sample["obs/desired_goal"][:, 0].astype(int) - 1), 1)

    for step in range(10):
        assert (counts[step, :step] == 0).all()
        expected = 3000 / (10 - step)
        assert np.abs(counts[step, step:] - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize("flat", [False, True])
def test_rewards_and_ends_follow_from_the_goal_and_all_else_stays(flat: bool) -> None:
    buffer = make_buffer(make_env=lambda: LineEnv(flat=flat), k=4)
    lanes = Lanes(3, seed=2, flat=flat)
    pushed = {}
    for _ in range(200):
        batch = lanes.batch()
        pushed.update({int(row["uid"]): dict(row) for row in batch})
        buffer.push(batch, 0)

    for row in buffer.sample(400, 0):
        old, goal = pushed[int(row["uid"])], row["obs"][2:] if flat else row["obs/desired_goal"]
        achieved = row["next_obs"][:2] if flat else row["next_obs/achieved_goal"]
        reached = bool((achieved == goal).all())
        assert (row["reward"], row["terminated"]) == (reached - 1.0, reached)
        assert (goal == (row["next_obs"][2:] if flat else row["next_obs/desired_goal"])).all()
        for name in (
            old.keys() - {"reward", "terminated", "done"} - {f"{each}obs/desired_goal" for each in ("", "next_")}
        ):
            kept = slice(0, 2) if flat and name.endswith("obs") else ...
            assert (np.asarray(row[name])[kept] == np.asarray(old[name])[kept]).all(), name


def test_a_row_that_ended_for_another_reason_than_its_goal_stays_ended() -> None:
    buffer = make_buffer(k=ALL)
    episode = straight_episode(3)
    episode["terminated"][1] = True  # it fell over, say, far from the goal
    buffer.push(episode, 0)

    sample = buffer.sample(2, 0, slice(1, 2), replace=True)

    assert sample["terminated"].all()


def test_k_of_k_plus_one_rows_are_relabelled() -> None:
    for k in (0, 1, 4, 0.5):
        buffer = make_buffer(k=k)
        episode = straight_episode(50, goal=99.0)  # which no step achieves
        buffer.push(episode, 0)

        relabelled = sum(int((buffer.sample(37, 0)["obs/desired_goal"][:, 0] != 99.0).sum()) for _ in range(400))

        assert relabelled / (37 * 400) == pytest.approx(k / (k + 1), abs=0.004), k


def test_the_buffer_itself_is_not_changed_by_sampling() -> None:
    buffer = filled("future", size=300, pushes=100)
    before = buffer.state_dict()["data"]

    for _ in range(20):
        sample = buffer.sample(64, 0)
        for column in sample.columns.values():
            column[:] = 0

    after = buffer.state_dict()["data"]
    assert all((before[name] == after[name]).all() for name in before)


def test_an_open_episode_gives_goals_as_its_rows_come() -> None:
    buffer = make_buffer(strategy="final", k=ALL)
    episode = straight_episode(9)
    goals = []
    for last in (3, 5, 9):
        buffer.push(episode[last - 2 if last > 3 else 0 : last] if last != 9 else episode[5:9], 0)
        goals.append(buffer.sample(1, 0, slice(0, 1))["obs/desired_goal"][0, 0])

    assert goals == [3.0, 5.0, 9.0]


def test_rows_that_come_after_a_cut_are_of_another_episode() -> None:
    buffer = make_buffer(strategy="final", k=ALL)
    episode = straight_episode(9)

    buffer.push(episode[0:4], 0)
    buffer.cut()
    buffer.push(episode[4:9], 0)

    goals = [float(buffer.sample(1, 0, slice(age, age + 1))["obs/desired_goal"][0, 0]) for age in range(9)]
    assert goals == [4.0] * 4 + [9.0] * 5


def test_lanes_of_any_number_take_the_rings_of_those_that_left() -> None:
    buffer = make_buffer(120, strategy="final", k=ALL)
    numbers = (0, 7 << 20, 3 << 20)
    for first in numbers:  # one source after the other, each longer than the buffer
        lanes = Lanes(2, seed=first % 97, first_lane=first)
        for _ in range(150):
            buffer.push(lanes.batch(), 0)

    state = buffer.state_dict()
    goals = possible_goals(stored_rows(buffer), "final")
    sample = buffer.sample(100, 0)

    assert state["num_streams"] <= 4
    assert set((state["data"]["uid"] // 10**6).tolist()) <= {0, 7 << 20, 3 << 20, (7 << 20) + 1, (3 << 20) + 1}
    for uid, goal in zip(sample["uid"].tolist(), sample["obs/desired_goal"].tolist(), strict=True):
        assert tuple(goal) in goals[uid]


@pytest.mark.parametrize("size_unit", ["rows", "episodes"])
def test_what_follows_a_saved_state_is_bit_equal(size_unit: str) -> None:
    size = 200 if size_unit == "rows" else 40
    buffer, other = (make_buffer(size, seed=seed, size_unit=size_unit) for seed in (3, 4))
    lanes = Lanes(3, seed=5)
    buffer.push(straight_episode(7), 0)
    for _ in range(150):
        buffer.push(lanes.batch(), 0)
    buffer.sample(16, 0)

    other.load_state_dict(buffer.state_dict())

    for _ in range(40):
        batch = lanes.batch()
        buffer.push(batch, 0)
        other.push(batch, 0)
        first, second = buffer.sample(32, 0), other.sample(32, 0)
        assert all((first[name] == second[name]).all() for name in first.columns)


def test_a_saved_file_is_pushed_and_what_comes_next_begins_anew() -> None:
    buffer, other = make_buffer(strategy="final", k=ALL), make_buffer(strategy="final", k=ALL)
    episode = straight_episode(9)
    buffer.push(episode[:5], 0)
    buffer.save_data("rows.safetensors")

    other.load_data("rows.safetensors")
    other.push(episode[5:], 0)

    sample = other.sample(9, 0)
    assert sample["obs/desired_goal"][sample["step"].argsort(), 0].tolist() == [5.0] * 5 + [9.0] * 4


def test_whole_episodes_and_lists_of_rows_are_taken() -> None:
    buffer = make_buffer(k=ALL, strategy="final")
    episodes = TransitionBatch.concat([straight_episode(3), straight_episode(4, episode=1)])

    buffer.push(EpisodeBatch(episodes, np.array([0, 3, 7])), 0)
    buffer.push([dict(row) for row in straight_episode(2, episode=2)], 0)

    assert buffer.count() == 9
    sample = buffer.sample(9, 0)
    goals = {(int(row["episode_id"]), float(row["obs/desired_goal"][0])) for row in sample}
    assert goals == {(0, 3.0), (1, 4.0), (2, 2.0)}


def test_a_size_in_episodes_is_of_the_longest_at_first() -> None:
    buffer = make_buffer(20, size_unit="episodes")

    buffer.push(TransitionBatch.concat([straight_episode(6), straight_episode(8, episode=1)]), 0)

    assert buffer.replay_buffer_size == 160


def test_a_size_in_episodes_needs_whole_ones() -> None:
    buffer = make_buffer(20, size_unit="episodes")

    with pytest.raises(SchemaError, match="no episode ends in the first rows.*size_unit='rows'"):
        buffer.push(straight_episode(6)[:3], 0)


def test_the_env_is_closed_with_the_buffer() -> None:
    env = LineEnv()
    buffer = make_buffer(make_env=lambda: env)
    assert not env.is_closed

    buffer.close()

    assert env.is_closed


class WithoutReward(LineEnv):
    compute_reward = None  # type: ignore[assignment]


class RewardsOtherwise(LineEnv):
    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, 2 * reward, *rest


class OneAtATime(LineEnv):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return float((achieved_goal == desired_goal).all()) - 1.0


class WithoutGoals(LineEnv):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self.observation_space["observation"]
        self.goal_size = 2


class EndsWithoutSaying(LineEnv):
    """End every episode with its third step, and do not say so in terms of goals."""

    compute_terminated = None  # type: ignore[assignment]

    def step(self, action: Any) -> Any:
        self._steps += 1
        return self._obs(), float(self.compute_reward(self._place, self._goal, {})), self._steps == 3, False, {}


class GoesOn(LineEnv):
    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.ones(np.shape(achieved_goal)[:-1], bool)

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, False, truncated, info


class ReadsInfo(LineEnv):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return super().compute_reward(achieved_goal, desired_goal, info) * info["weight"]

    def step(self, action: Any) -> Any:
        return self._obs(), 0.0, False, False, {"weight": 1.0}


def hundredfold() -> Any:
    """Return such an env in other units: its sparse rewards look the same, its goals do not."""
    env = LineEnv()
    return gymnasium.wrappers.TransformObservation(
        env, lambda obs: {key: 100 * value + 1 for key, value in obs.items()}, env.observation_space
    )


@pytest.mark.parametrize(
    ("make_env", "said"),
    [
        (EndsWithoutSaying, "give it compute_terminated"),
        (GoesOn, "went on where its compute_terminated says that they end"),
        (ReadsInfo, "compute_reward of .* reads info.'weight'."),
        (hundredfold, "change goals"),
        (WithoutReward, "needs an env with compute_reward"),
        (RewardsOtherwise, "were rewarded otherwise"),
        (OneAtATime, r"compute_reward of .* must take goals \[B, 2\] and return \[B\]"),
        (WithoutGoals, "finds no goals in the observation"),
        (None, "give make_env="),
    ],
)
def test_an_env_that_hindsight_cannot_use_is_refused(make_env: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_buffer(make_env=make_env)


def test_settings_that_make_no_sense_are_refused() -> None:
    for name, value, said in (
        ("strategy", "futur", "strategy is 'futur', expected 'future', 'final', 'episode'"),
        ("k", -1, "k is -1"),
        ("size_unit", "row", "size_unit is 'row'"),
        ("frame_stack", 4, "frame_stack is 4"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_buffer(**{name: value})


def test_rows_of_several_steps_are_refused() -> None:
    buffer = make_buffer()
    episode = straight_episode(3)

    with pytest.raises(SchemaError, match=r"of several steps.*nstep=1"):
        buffer.push(episode.with_columns(discount=np.ones(3, np.float32)), 0)
