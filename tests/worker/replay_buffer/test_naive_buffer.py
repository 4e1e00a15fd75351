from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.errors import CheckpointError, ConfigError, SchemaError
from ding_like.utils.checkpoint import save_state
from ding_like.utils.measure import Interval
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker import IBuffer, NaiveReplayBuffer, create_buffer, get_buffer_cls
from ding_like.worker.replay_buffer.buffer import RateLimiter, UsedDataRemover
from tests.support import Clock


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def build(size: int = 8, *, seed: int = 0, tb_logger: Any = None, **cfg: Any) -> NaiveReplayBuffer:
        buffer = NaiveReplayBuffer(
            {"replay_buffer_size": size, **cfg}, tb_logger, str(tmp_path / "exp"), rng=np.random.default_rng(seed)
        )
        request.addfinalizer(buffer.close)
        return buffer

    return build


def rows(*rewards: float) -> TransitionBatch:
    reward = np.array(rewards, np.float32)
    return TransitionBatch({"reward": reward, "obs": np.stack([reward, -reward], axis=1)})


def stored(buffer: NaiveReplayBuffer) -> list[float]:
    """Return the rewards, oldest first."""
    data = buffer.state_dict()["data"]
    return [] if len(data) == 0 else data["reward"].tolist()


def log_text(tmp_path: Path) -> str:
    return (tmp_path / "exp/log/buffer/buffer_logger.txt").read_text()


def test_defaults_are_the_seeds() -> None:
    assert NaiveReplayBuffer.default_config() == {
        "type": "naive",
        "replay_buffer_size": 10000,
        "frame_stack": 0,  # ours
        "deepcopy": False,
        "enable_track_used_data": False,
        "periodic_thruput_seconds": 60,
        "cfg_type": "NaiveReplayBufferDict",
    }


@pytest.mark.parametrize("name", ["naive", "deque"])
def test_create_buffer_builds_what_type_names(name: str, tmp_path: Path) -> None:
    cfg = {"type": name, "replay_buffer_size": 3}

    buffer = create_buffer(cfg, None, exp_name=str(tmp_path))

    assert type(buffer) is get_buffer_cls(cfg) is NaiveReplayBuffer
    assert isinstance(buffer, IBuffer)
    assert (buffer.replay_buffer_size, buffer.push_count, buffer.count()) == (3, 0, 0)
    buffer.close()


def test_a_size_below_one_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="replay_buffer_size is 0"):
        make(0)


def test_push_takes_tensors(make: Any) -> None:
    buffer = make()

    buffer.push(rows(1, 2).to("cpu"), 0)
    buffer.push(rows(3).to("cpu"), 0)

    assert stored(buffer) == [1, 2, 3] and len(buffer.sample(0, 0)) == 0
    assert isinstance(buffer.sample(1, 0)["reward"], np.ndarray)


def test_push_of_another_schema_is_refused_whole(make: Any) -> None:
    buffer = make()
    buffer.push(rows(1, 2), 0)
    for batch in (
        TransitionBatch({"reward": np.zeros(1, np.float32)}),
        TransitionBatch({"reward": np.zeros(1, np.float64), "obs": np.zeros((1, 2), np.float32)}),
        TransitionBatch({"reward": np.zeros(1, np.float32), "obs": np.zeros((1, 1), np.float32)}),
        TransitionBatch({**rows(1).columns, "extra": np.zeros(1)}),
        [{"reward": 1.0, "obs": [1.0, 2.0]}, {"reward": 1.0, "obs": [1.0]}],
        "text",
    ):
        with pytest.raises(SchemaError, match="the buffer"):
            buffer.push(batch, 0)

        assert (stored(buffer), buffer.push_count) == ([1, 2], 2), batch


def test_clear_forgets_rows_schema_and_push_count(make: Any) -> None:
    buffer = make()
    buffer.push(rows(1, 2), 0)

    buffer.clear()

    assert (buffer.count(), buffer.push_count) == (0, 0)
    buffer.push({"other": 1}, 0)
    assert buffer.count() == 1


@pytest.mark.parametrize("replace", [False, True])
def test_sample_is_even(make: Any, replace: bool) -> None:
    """Of 10 rows, 5 are drawn 4,000 times: 2,000 times each, standard deviation below 45."""
    buffer = make(10)
    buffer.push(rows(*range(13)), 0)

    drawn = [buffer.sample(5, 0, replace=replace)["reward"] for _ in range(4000)]

    counts = np.bincount(np.concatenate(drawn).astype(int), minlength=13)
    assert counts[:3].tolist() == [0, 0, 0]
    assert abs(counts[3:] - 2000).max() < 180


def test_sample_range_is_by_age(make: Any) -> None:
    buffer = make(6)
    buffer.push(rows(*range(10)), 0)

    for sample_range, expected in (
        (slice(-2, None), {8, 9}),
        (slice(None, 2), {4, 5}),
        (slice(0, None, 2), {4, 6, 8}),
        (slice(None, None, -3), {9, 6}),
        (slice(-100, 1), {4}),
    ):
        drawn = buffer.sample(40, 0, sample_range, replace=True)["reward"]
        assert set(drawn.tolist()) == expected, sample_range


def test_sample_range_counts_as_what_there_is(make: Any) -> None:
    buffer = make(6)
    buffer.push(rows(*range(6)), 0)

    assert buffer.sample(3, 0, slice(-2, None)) is None
    assert buffer.sample(1, 0, slice(3, 3), replace=True) is None


def test_sample_of_nothing_is_empty(make: Any) -> None:
    buffer = make()

    assert len(buffer.sample(0, 0)) == 0
    buffer.push(rows(1), 0)
    assert buffer.sample(0, 0)["obs"].shape == (0, 2)


def test_too_few_rows_give_none_and_one_line_in_the_log(make: Any, tmp_path: Path) -> None:
    buffer = make()

    assert buffer.sample(1, 0) is None
    buffer.push(rows(1), 0)
    assert buffer.sample(4, 0) is None

    assert log_text(tmp_path).count("no sample") == 1


def test_update_warns_once(make: Any, tmp_path: Path) -> None:
    buffer = make()

    buffer.update({"priority": [1.0]})
    buffer.update({"priority": [1.0]})

    assert log_text(tmp_path).count("priorities are ignored") == 1


def test_load_into_a_smaller_buffer_keeps_the_newest(make: Any) -> None:
    buffer, smaller = make(8), make(3)
    buffer.push(rows(*range(10)), 0)

    smaller.load_state_dict(buffer.state_dict())

    assert stored(smaller) == [7, 8, 9]


def test_load_of_data_alone_extends(make: Any) -> None:
    buffer, other = make(), make()
    buffer.push(rows(1, 2), 0)
    other.push(rows(0), 0)

    other.load_state_dict({"data": buffer.state_dict()["data"]})

    assert (stored(other), other.push_count) == ([0, 1, 2], 3)


def test_load_data_of_another_file_is_one_clear_error(make: Any, tmp_path: Path) -> None:
    save_state(tmp_path / "model", {"weights": 1})

    with pytest.raises(CheckpointError, match="weights and no 'data'"):
        make().load_data(str(tmp_path / "model"))


def test_ragged_data_falls_back_to_objects(make: Any) -> None:
    buffer = make()

    buffer.push([{"obs": np.zeros(2)}, {"obs": np.zeros(3)}], 0)
    buffer.push({"obs": np.zeros(2)}, 0)

    assert sorted(len(item["obs"]) for item in buffer.sample(3, 0)) == [2, 2, 3]


def test_one_object_of_any_kind_is_one_row(make: Any) -> None:
    buffer = make()

    buffer.push("text", 0)
    buffer.push(("a", "tuple"), 0)
    buffer.push(["in", "a", "list"], 0)

    assert buffer.count() == 5


def test_objects_stay_objects_when_a_batch_is_pushed(make: Any) -> None:
    buffer = make()
    buffer.push("text", 0)

    buffer.push(TransitionBatch({"reward": np.ones(2)}), 0)

    texts, rows = [], []
    for each in buffer.sample(3, 0):
        (texts if isinstance(each, str) else rows).append(each)
    assert texts == ["text"] and [dict(row) for row in rows] == [{"reward": 1.0}] * 2


def test_objects_survive_a_file_as_objects(make: Any, tmp_path: Path) -> None:
    buffer, other = make(2), make(2)
    buffer.push([{"obs": "ragged"}, {"obs": torch.ones(2)}, {"obs": torch.zeros(2)}], 0)

    buffer.save_data(str(tmp_path / "data"))
    other.load_data(str(tmp_path / "data"))

    assert sorted(float(item["obs"].sum()) for item in other.sample(2, 0)) == [0.0, 2.0]
    assert isinstance(other.sample(1, 0), list)


def test_throughput_is_reported_once_a_window(make: Any, tmp_path: Path) -> None:
    sink = MetricsSink(tmp_path / "exp")
    buffer, now = make(4, tb_logger=sink), [0.0]
    buffer._reports = Interval(60, clock=lambda: now[0])
    buffer.push(rows(1, 2, 3), 8)
    buffer.sample(2, 1)

    now[0] = 61.0
    buffer.push(rows(4, 5), 16)
    sink.close()

    assert "pushed_in 5, sampled_out 2, removed 1" in log_text(tmp_path)
    assert log_text(tmp_path).count("pushed_in") == 1
    assert list((tmp_path / "exp/log/serial").iterdir())
    assert not sink.path.exists()


def test_threads_may_push_and_sample_at_once(make: Any) -> None:
    buffer, failures = make(64), []
    buffer.push(rows(*range(64)), 0)

    def push() -> None:
        for start in range(300):
            buffer.push(rows(start, start + 1, start + 2), 0)

    def sample() -> None:
        for _ in range(300):
            batch = buffer.sample(16, 0)
            if not (batch["obs"][:, 0] == batch["reward"]).all():
                failures.append(batch)

    threads = [threading.Thread(target=target) for target in (push, sample, push, sample)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not failures
    assert buffer.push_count == 64 + 2 * 300 * 3


def test_close_clears_and_may_be_called_twice(make: Any) -> None:
    buffer = make()
    buffer.push(rows(1), 0)

    buffer.close()
    buffer.close()

    assert buffer.count() == 0


def make_files(folder: Path, num: int) -> list[dict[str, Any]]:
    paths = [folder / f"data_{i}" for i in range(num)]
    for path in paths:
        path.write_text("data")
    return [{"data_id": str(path), "priority": 1.0} for path in paths]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("data_*"))


def test_files_of_overwritten_rows_are_deleted(make: Any, tmp_path: Path) -> None:
    buffer = make(3, enable_track_used_data=True)

    buffer.push(make_files(tmp_path, 5), 0)

    assert left(tmp_path) == ["data_2", "data_3", "data_4"]
    assert sorted(Path(item["data_id"]).name for item in buffer.sample(3, 0)) == left(tmp_path)


def test_close_deletes_the_files_that_are_left(make: Any, tmp_path: Path) -> None:
    buffer = make(3, enable_track_used_data=True)
    buffer.start()
    buffer.push(make_files(tmp_path, 3), 0)

    buffer.close()
    buffer.close()

    assert left(tmp_path) == []


def test_tracking_refuses_data_without_a_file(make: Any, tmp_path: Path) -> None:
    buffer = make(3, enable_track_used_data=True)
    buffer.push(make_files(tmp_path, 1), 0)

    with pytest.raises(SchemaError, match="data_id"):
        buffer.push([{"data_id": "a"}, {"reward": 1.0}], 0)

    assert buffer.count() == 1


def test_loading_keeps_the_files_that_are_loaded(make: Any, tmp_path: Path) -> None:
    buffer = make(3, enable_track_used_data=True)
    buffer.push(make_files(tmp_path, 3), 0)

    buffer.load_state_dict(buffer.state_dict())

    assert left(tmp_path) == ["data_0", "data_1", "data_2"]
    buffer.push({"data_id": str(tmp_path / "data_9")}, 0)
    assert left(tmp_path) == ["data_1", "data_2"]


def rows_of(shape: tuple[int, ...]) -> TransitionBatch:
    obs = np.zeros((2, *shape), np.uint8)
    return TransitionBatch({"obs": obs, "next_obs": obs, "done": np.zeros(2, bool), "lane": np.zeros(2, np.int64)})


@pytest.mark.usefixtures("in_tmp")
@pytest.mark.parametrize(
    ("kind", "frame_stack", "rows"),
    [("naive", 0, 10**12), ("advanced", 0, 10**12), ("naive", 0, 10**8), ("naive", 4, 10**8), ("sequence", 0, 10**8)],
)
def test_a_buffer_larger_than_memory_is_refused(kind: str, frame_stack: int, rows: int) -> None:
    settings: dict[str, Any] = {"replay_buffer_size": rows, "frame_stack": frame_stack}
    cls = BUFFER_REGISTRY.get(kind)

    with pytest.raises(ConfigError, match=rf"replay_buffer_size is {rows:,}.* GiB are available: give [\d,]+ or fewer"):
        cls({**cls.default_config(), **settings}).push(rows_of((4, 512, 512)), 0)


logger = logging.getLogger(__name__)


def test_pushes_stop_at_the_maximum_until_samples_catch_up() -> None:
    limiter = RateLimiter(0, 2, 30, clock=Clock())
    limiter.add(pushed=20, sampled=10)

    assert not limiter.may_push()
    limiter.add(sampled=1)
    assert limiter.may_push()


def test_samples_stop_below_the_minimum_until_pushes_catch_up() -> None:
    limiter = RateLimiter(0.5, 10, 30, clock=Clock())
    limiter.add(pushed=4, sampled=9)

    assert not limiter.may_sample()
    limiter.add(pushed=1)
    assert limiter.may_sample()


def test_everything_passes_before_the_first_sample() -> None:
    limiter = RateLimiter(3, 3, 30, clock=Clock())
    limiter.add(pushed=1_000_000)

    assert limiter.may_push()
    assert limiter.may_sample()


@pytest.mark.parametrize("times_asked", [0, 300])
def test_counts_fade_to_one_percent_in_a_window_however_often_it_is_asked(times_asked: int) -> None:
    clock = Clock()
    limiter = RateLimiter(0, 1, 30, clock=clock)
    limiter.add(pushed=1000, sampled=10)
    for _ in range(times_asked):
        clock.now += 0.1
        limiter.may_push()
    clock.now += 0 if times_asked else 30

    limiter.add(sampled=10)  # 10 pushed against 10.1 sampled
    assert not limiter.may_push()
    limiter.add(sampled=1)
    assert limiter.may_push()


def test_a_loaded_limiter_goes_on_where_the_saved_one_was() -> None:
    clock, later = Clock(), Clock()
    limiter, other = RateLimiter(0, 1, 30, clock=clock), RateLimiter(0, 1, 30, clock=later)
    limiter.add(pushed=1000, sampled=10)
    clock.now += 30
    later.now += 5000  # time between save and load does not count

    other.load_state_dict(limiter.state_dict())

    other.add(sampled=10)  # 10 pushed against 10.1 sampled
    assert not other.may_push()
    other.add(sampled=1)
    assert other.may_push()


def test_no_limits_need_no_limiter() -> None:
    cfg = {"push_sample_rate_limit": {"max": float("inf"), "min": 0}, "window_seconds": 30}

    assert RateLimiter.from_cfg(cfg) is None


def test_nonsense_is_refused() -> None:
    for low, high, window_s in ((-1, 2, 30), (3, 2, 30), (0, 2, 0), (0, 2, float("nan"))):
        with pytest.raises(ConfigError):
            RateLimiter(low, high, window_s)


@pytest.mark.parametrize("starts_due", [False, True])
def test_interval_passes_once_in_its_seconds(starts_due: bool) -> None:
    clock = Clock(0.0)
    interval = Interval(10, starts_due=starts_due, clock=clock)

    answers = []
    for clock.now in (0, 9, 10, 11, 19, 25):
        answers.append(interval.pass_s())

    assert answers[1:] == [0, 10, 0, 0, 15] and bool(answers[0]) is starts_due


@pytest.mark.parametrize(("name", "is_named"), [("gone", False), (".", True)])
def test_a_file_that_cannot_be_deleted_is_named_unless_it_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, is_named: bool
) -> None:
    remover = UsedDataRemover(logger)
    remover.paths.append(str(tmp_path / name))

    remover.delete()

    assert (str(tmp_path) in caplog.text) is bool(caplog.records) is is_named
