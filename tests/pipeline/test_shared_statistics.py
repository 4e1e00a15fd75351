"""What the wrappers of many processes observe is merged at the learner as if one process had seen it all."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.envs import EnvFactory, create_env_manager
from ding_like.errors import CheckpointError, ConfigError, SchemaError
from ding_like.pipeline.statistics import ENV_WRAPPERS, CollectorStatistics, MergedStatistics, WrapperStatistics
from ding_like.types import EnvManager
from ding_like.utils.checkpoint import load_state, save_state

PENDULUM = dict(type="gymnasium", env_id="Pendulum-v1", max_episode_steps=7)
BOTH = [dict(type="rescale_action"), dict(type="obs_norm"), dict(type="reward_norm", gamma=0.9)]
KINDS = [dict(type="base"), dict(type="subprocess", envs_per_process=2)]


def make(kind: dict[str, Any], *, lanes: int = 3, seed: int = 0, wrappers: Any = BOTH, **env: Any) -> EnvManager:
    manager = create_env_manager(kind, [EnvFactory(dict(PENDULUM, **env, wrappers=wrappers)) for _ in range(lanes)])
    manager.seed(seed)
    return manager


class Seen:
    """Play what a manager plays in envs without normalisation, and keep every observation and discounted return."""

    def __init__(self, *, lanes: int = 3, seed: int = 0) -> None:
        self.raw = make(dict(type="base"), lanes=lanes, seed=seed, wrappers=[dict(type="rescale_action")])
        self.raw.launch()
        self.obs, self.returns, self._return = [self.raw.obs.copy()], [], np.zeros(lanes)

    def step(self, actions: Any) -> None:
        answer = self.raw.step(np.arange(len(actions)), actions)
        self._return = 0.9 * self._return + answer.reward.astype(np.float64)
        self.returns.append(self._return.copy())
        self.obs.append(answer.next_obs.copy())
        done = answer.terminated | answer.truncated
        if done.any():
            self._return[done] = 0.0
            self.obs.append(self.raw.obs[done].copy())


def play(manager: EnvManager, steps: int, rng: np.random.Generator, seen: Seen | None = None) -> None:
    for _ in range(steps):
        actions = rng.uniform(-1.0, 1.0, size=(manager.num_lanes, 1)).astype(np.float32)
        assert len(manager.step(np.arange(manager.num_lanes), actions).lanes) == manager.num_lanes
        if seen is not None:
            seen.step(actions)


@pytest.mark.parametrize("kind", KINDS, ids=["base", "subprocess"])
def test_two_collectors_give_the_statistics_of_one_process_that_saw_everything(kind: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    managers, seen = [make(kind, seed=10 * i) for i in range(2)], [Seen(seed=10 * i) for i in range(2)]
    collectors = [CollectorStatistics(manager) for manager in managers]
    total = MergedStatistics(managers[0])
    for manager in managers:
        manager.launch()

    for serial in range(1, 9):
        which = serial % 2
        play(managers[which], int(rng.integers(0, 12)), rng, seen[which])
        total.merge(collectors[which].take(), serial=serial)

    flat = total.weights()
    obs = np.concatenate([each for one in seen for each in one.obs]).astype(np.float64)
    returns = np.concatenate([each for one in seen for each in one.returns])
    assert list(flat) == ["0.RewardNorm", "1.ObsNorm"]
    # The envs' own float32 rewards reach the raw envs' log rounded, hence fewer digits for returns.
    for name, data, digits in (("1.ObsNorm", obs, 1e-12), ("0.RewardNorm", returns, 1e-6)):
        entry = flat[name]
        assert entry["count"] == len(data)
        np.testing.assert_allclose(entry["mean"], data.mean(axis=0), rtol=digits, atol=1e-12)
        np.testing.assert_allclose(entry["m2"] / entry["count"], data.var(axis=0), rtol=digits)
    for each in (*managers, *(one.raw for one in seen)):
        each.close()


@pytest.mark.parametrize("kind", KINDS, ids=["base", "subprocess"])
def test_a_collector_normalises_by_the_merged_statistics_and_they_stand_still(kind: dict[str, Any]) -> None:
    manager, rng, seen = make(kind), np.random.default_rng(0), Seen()
    collector, total = CollectorStatistics(manager), MergedStatistics(manager)
    manager.launch()
    play(manager, 20, rng, seen)
    total.merge(collector.take(), serial=1)
    collector.use(total.weights())
    known = total.weights()["1.ObsNorm"]

    for _ in range(10):
        play(manager, 1, rng, seen)
        expected = (seen.raw.obs - known["mean"]) / np.sqrt(known["m2"] / known["count"] + 1e-8)
        # A lane whose episode has just begun shows its first observation in both.
        np.testing.assert_allclose(manager.obs, np.clip(expected, -10, 10), rtol=1e-5, atol=1e-5)

    assert total.weights()["1.ObsNorm"]["count"] == known["count"]
    # Ten steps of three lanes, and the first observations of the episodes that began meanwhile.
    assert collector.take()["1.ObsNorm/count"] == 30 + 3 * (30 // 7 - 20 // 7)
    manager.close()
    seen.raw.close()


def test_nothing_observed_is_an_empty_part() -> None:
    manager = make(KINDS[0])
    collector, total = CollectorStatistics(manager), MergedStatistics(manager)
    manager.launch()

    first, second = collector.take(), collector.take()
    total.merge(second)

    assert first["1.ObsNorm/count"] == 3 and second["1.ObsNorm/count"] == 0
    assert total.weights()["1.ObsNorm"]["count"] == 0
    manager.close()


def test_an_env_without_such_wrappers_tells_nothing_and_is_told_nothing() -> None:
    manager = make(KINDS[0], wrappers=[])
    collector, total = CollectorStatistics(manager), MergedStatistics(manager)
    manager.launch()

    total.merge(collector.take(), serial=1)
    collector.use(total.weights())
    total.evaluate_with(manager)

    assert collector.take() == total.weights() == total.state_dict() == {} and total.num_bytes == 0
    manager.close()


def part(total: MergedStatistics, count: float, mean: float) -> dict[str, Any]:
    """Return what `count` observations tell that are all `mean`."""
    shapes = {name: entry["mean"].shape for name, entry in total.weights().items()}
    return {
        f"{name}/{field}": np.array(count) if field == "count" else np.full(shape, mean if field == "mean" else 0.0)
        for name, shape in shapes.items()
        for field in ("count", "mean", "m2")
    }


@pytest.fixture
def total() -> Any:
    manager = make(KINDS[0], lanes=1)
    yield MergedStatistics(manager)
    manager.close()


def counted(total: MergedStatistics) -> float:
    return float(total.weights()["1.ObsNorm"]["count"])


def test_a_segment_counts_once_also_one_that_came_late(total: MergedStatistics) -> None:
    for serial in (1, 2, 5, 5, 2, 4, 4):  # 3 is lost, 4 is late
        total.merge(part(total, 10.0**serial, 1.0), serial=serial)

    assert counted(total) == 10 + 100 + 100_000 + 10_000


def test_a_learner_that_goes_on_from_a_saved_point_counts_what_it_reads_again_once(total: MergedStatistics) -> None:
    for serial in (1, 3):
        total.merge(part(total, 10.0**serial, 1.0), serial=serial)
    state = total.resume_state()
    again = make(KINDS[0], lanes=1)
    restarted = MergedStatistics(again)

    restarted.load_resume_state(state)
    for serial in (1, 2, 3, 4):
        restarted.merge(part(total, 10.0**serial, 1.0), serial=serial)

    assert counted(restarted) == 10 + 1000 + 100 + 10_000
    again.close()


def test_statistics_that_no_env_gives_are_refused_and_change_nothing(total: MergedStatistics) -> None:
    for name, value in [
        ("1.ObsNorm/count", np.array(-1.0)),
        ("1.ObsNorm/count", np.array(np.inf)),
        ("1.ObsNorm/count", np.zeros(1)),
        ("1.ObsNorm/count", np.array(3)),
        ("1.ObsNorm/mean", np.zeros(2)),
        ("1.ObsNorm/mean", np.full(3, np.nan)),
        ("1.ObsNorm/m2", np.full(3, -1.0)),
        ("2.ObsNorm/mean", np.zeros(3)),
    ]:
        with pytest.raises(SchemaError, match="the statistics"):
            total.merge({**part(total, 3.0, 1.0), name: value}, serial=1)

        assert counted(total) == 0 and total.resume_state()["segments"].tolist() == [0]


def test_evaluations_normalise_by_the_merged_statistics_and_learn_nothing(total: MergedStatistics) -> None:
    evaluator = make(KINDS[0], lanes=2, seed=3)
    evaluator.launch()
    total.merge(part(total, 50.0, 0.25), serial=1)

    total.evaluate_with(evaluator)
    play(evaluator, 10, np.random.default_rng(0))

    for lane in evaluator.wrapper_states():
        assert [each["state"]["count"] for each in lane] == [50.0, 50.0]
        assert lane[1]["state"]["mean"].tolist() == [0.25] * 3
    evaluator.close()


def test_an_evaluation_before_anything_is_known_sees_observations_as_they_are(total: MergedStatistics) -> None:
    evaluator = make(KINDS[0], lanes=1)
    total.evaluate_with(evaluator)
    evaluator.launch()

    play(evaluator, 10, np.random.default_rng(0))

    assert evaluator.wrapper_states()[0][1]["state"]["count"] < 1
    evaluator.close()


def test_a_checkpoint_of_either_run_brings_its_statistics_to_the_other(tmp_path: Path, total: MergedStatistics) -> None:
    serial = make(KINDS[0])
    serial.launch()
    play(serial, 30, np.random.default_rng(0))
    expected = [lane[1]["state"]["mean"] for lane in serial.wrapper_states()]

    save_state(tmp_path / "ckpt", {ENV_WRAPPERS: WrapperStatistics(serial).state_dict()})
    total.load_state_dict(load_state(tmp_path / "ckpt")[ENV_WRAPPERS])
    save_state(tmp_path / "ckpt", {ENV_WRAPPERS: total.state_dict()})
    WrapperStatistics(serial).load_state_dict(load_state(tmp_path / "ckpt")[ENV_WRAPPERS])

    for lane in serial.wrapper_states():
        np.testing.assert_allclose(lane[1]["state"]["mean"], np.mean(expected, axis=0), rtol=1e-10)
    serial.close()


def test_a_checkpoint_of_an_env_that_is_wrapped_otherwise_is_refused(total: MergedStatistics) -> None:
    with pytest.raises(CheckpointError, match="use the env.wrappers of the run"):
        total.load_state_dict({"lanes": [[{"type": "ObsNorm", "state": {}}]]})


class Counting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Remember something that no other process can merge."""

    def state_dict(self) -> dict[str, Any]:
        return {"level": 3}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def test_a_memory_that_cannot_be_merged_is_refused_with_a_way_out() -> None:
    manager = create_env_manager(dict(type="base"), [functools.partial(_counting)])

    for cls in (CollectorStatistics, MergedStatistics):
        with pytest.raises(ConfigError, match=r"Counting remembers \['level'\].*Use mode serial"):
            cls(manager)
    manager.close()


def _counting() -> Any:
    return Counting(gymnasium.make("CartPole-v1"))
