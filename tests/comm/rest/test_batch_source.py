"""The learner's batches are the rows that collectors sent, in the order in which the coordinator drew them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.rest.rows import BatchReader, Mirror, RestBatchSource, RowCheck
from ding_like.data.batch import Schema, TransitionBatch
from ding_like.data.segment_file import SegmentError, read_segment, remove_segments
from ding_like.errors import CommError, SchemaError
from ding_like.pipeline.parallel.coordinator import LockedService
from tests.pipeline.parallel.service_parts import begin, columns_of, make_core, segment
from tests.support import wait_until

SIZE = 40


class Run:
    """Coordinator in this process, a collector that sends segments, and a learner's source of batches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.core = make_core(folder, size=SIZE)
        self.learner, self.learn, self.collector, self.task = begin(self.core)
        self.service = LockedService(self.core)
        self.number = 0
        self.source = self.make_source(self.read)
        self.updates: list[m.Update] = []  # that were reported

    def make_source(self, read: Any, **more: Any) -> RestBatchSource:
        own: dict[str, Any] = dict(worker_id=self.learner, read=read, batch_size=4, buffer_size=SIZE, num_batches=3)
        return RestBatchSource(self.service, self.learn, **own, **more)

    def read(self, segment: m.NewSegment) -> dict[str, Any]:
        told = dict(rows=segment.rows, sha256=segment.sha256, nbytes=segment.nbytes)
        return read_segment(self.folder, segment.name, **told)[0]

    def next(self) -> TransitionBatch:
        """Return the next batch, whose rows are of segments that were sent."""
        batch = self.source.next(timeout_s=60.0)
        assert batch is not None and len(batch) == 4
        assert (batch["segment"] < self.number).all()
        assert (batch["row"] < 5 + batch["segment"] % 4).all(), "a row of another segment"
        return batch

    def send(self, *, damage: bool = False) -> None:
        info = segment(self.folder, self.collector, self.number, rows=5 + self.number % 4)
        if damage:
            (self.folder / f"{info.name}.safetensors").write_bytes(b"nonsense")
        self.number += 1
        self.service.send_data(self.collector, self.task.task_id, m.SendData(self.task.attempt, (info,)))

    def close(self) -> None:
        self.source.close()
        self.core.close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Run(tmp_path)
    update = made.service.update

    def record(worker: str, buffer: str, message: m.Update) -> Any:
        made.updates.append(message)
        return update(worker, buffer, message)

    monkeypatch.setattr(made.service, "update", record)
    yield made
    made.close()


def test_rows_are_those_that_were_sent_over_many_rounds(run: Run) -> None:
    drawn: set[tuple[int, int]] = set()
    for _ in range(60):
        run.send()
        while run.core.book.granted_updates < run.core.cfg.ratio.allowed_updates(run.core.env_step):
            batch = run.next()
            drawn.update(zip(batch["segment"].tolist(), batch["row"].tolist(), strict=True))
        remove_segments(run.folder, run.core.book.removable)

    assert max(segment for segment, _ in drawn) >= 55 and len(drawn) > 150
    assert run.source.num_replaced == 0
    assert len(list(run.folder.iterdir())) < 60


def test_without_data_there_is_no_batch_in_time(run: Run) -> None:
    assert run.source.next(timeout_s=0.05) is None


def test_a_segment_that_cannot_be_read_is_left_out_and_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.comm.rest.rows._LATE_S", 0.0)
    for number in range(6):
        run.send(damage=number == 2)

    seen = set()
    for _ in range(6):
        seen.update(run.next()["segment"].tolist())
    run.source.feedback(6, priority=None, info=dict)
    run.source.close()

    assert 2 not in seen and len(seen) >= 3
    assert [name for each in run.updates for name in each.bad_segments] == [f"{run.collector}.00000002"]


def test_a_segment_that_comes_late_is_learned_from_later(run: Run) -> None:
    for number in range(6):
        run.send()
        if number == 2:
            late = run.folder / f"{run.collector}.00000002.safetensors"
            late.rename(run.folder / "hidden")
    seen: set[int] = set()
    for turn in range(200):
        if turn == 3:
            assert 2 not in seen and run.source.num_replaced >= 0
            (run.folder / "hidden").rename(late)
        if run.core.book.granted_updates >= run.core.cfg.ratio.allowed_updates(run.core.env_step):
            run.send()
        seen.update(run.next()["segment"].tolist())
        if 2 in seen:
            break

    assert 2 in seen and run.core.book.bad_rows == 0


def test_late_rows_do_not_take_places_of_newer_ones() -> None:
    mirror = Mirror(8)
    first, second, third = (m.NewSegment(serial, "s", 4, 4 * (serial - 1) % 8, "x", 1) for serial in (1, 2, 3))
    mirror.take(first, None)
    mirror.take(second, columns_of("w", 2, 4))
    mirror.take(first, columns_of("w", 1, 4))
    assert mirror.gather(np.arange(8))["segment"].tolist() == [1] * 4 + [2] * 4

    mirror.take(third, None)
    mirror.take(second, columns_of("w", 9, 4))  # it is there already: nothing is written
    mirror.take(first, columns_of("w", 1, 4))
    assert not mirror.are_there(np.arange(4), (3 << 20) + np.arange(4)).any()
    mirror.take(third, columns_of("w", 3, 4))
    mirror.take(first, columns_of("w", 1, 4))
    assert mirror.gather(np.arange(8))["segment"].tolist() == [3] * 4 + [2] * 4
    assert mirror.are_there(np.arange(4), (3 << 20) + np.arange(4)).all()


def test_a_mirror_holds_rows_at_their_places_around_the_end() -> None:
    mirror = Mirror(10)
    model: dict[int, tuple[int, int]] = {}
    first = 0
    for serial in range(1, 30):
        rows = serial % 5 + 1
        mirror.take(m.NewSegment(serial, "w.1", rows, first % 10, "", 1), columns_of("w", serial, rows))
        model.update({(first + row) % 10: (serial, row) for row in range(rows)})
        first += rows

        places = np.array(sorted(model))
        batch = mirror.gather(places)
        assert list(zip(batch["segment"].tolist(), batch["row"].tolist(), strict=True)) == [model[p] for p in places]
        ids = np.array([model[place][0] * m.ROWS_PER_SEGMENT + model[place][1] for place in places])
        assert mirror.are_there(places, ids).all() and not mirror.are_there(places, ids + 1).any()


def test_rows_of_another_shape_do_not_enter() -> None:
    mirror = Mirror(10)
    mirror.take(m.NewSegment(1, "w.1", 2, 0, "", 1), {"x": np.zeros(2)})

    with pytest.raises(SchemaError, match="the learner's mirror"):
        mirror.take(m.NewSegment(2, "w.2", 2, 2, "", 1), {"x": np.zeros((2, 2))})

    assert mirror.last_serial == 1


def test_a_segment_left_out_leaves_no_old_rows_to_draw() -> None:
    mirror = Mirror(10)
    mirror.take(m.NewSegment(1, "w.1", 10, 0, "", 1), columns_of("w", 1, 10))

    mirror.take(m.NewSegment(2, "w.2", 4, 8, "", 1), None)  # around the end

    old, new = m.ROWS_PER_SEGMENT + np.arange(10), 2 * m.ROWS_PER_SEGMENT + np.arange(4)
    assert mirror.are_there(np.arange(10), old).tolist() == [False] * 2 + [True] * 6 + [False] * 2
    assert not mirror.are_there(np.array([8, 9, 0, 1]), new).any() and mirror.last_serial == 2


def test_priorities_come_back_with_the_rows_that_they_are_of(run: Run) -> None:
    for _ in range(6):
        run.send()

    expected = []
    for train_iter in range(5):
        batch = run.next()
        # Segment n is the one with serial n + 1.
        expected += ((batch["segment"] + 1) * m.ROWS_PER_SEGMENT + batch["row"]).tolist()
        run.source.feedback(train_iter, priority=np.full(4, train_iter, np.float32), info=dict)
    run.source.close()

    told = [message for message in run.updates if message.unique_ids is not None]
    assert np.concatenate([message.unique_ids for message in told]).tolist() == expected
    assert np.concatenate([message.priorities for message in told]).tolist() == np.repeat(np.arange(5), 4).tolist()
    assert all(len(message.places) == len(message.unique_ids) for message in told)


def test_the_end_of_the_run_ends_the_wait(run: Run) -> None:
    with run.service._changed:
        run.core.is_over = True
        run.service._changed.notify_all()

    batch = run.source.next(timeout_s=60.0)

    assert batch is None and run.source.finished


def test_a_slow_learner_is_not_flooded_however_often_it_reports(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.comm.rest.rows._REPORT_S", 0.0)
    for _ in range(40):
        run.send()
    assert run.core.cfg.ratio.allowed_updates(run.core.env_step) > 100

    assert run.source.next(timeout_s=60.0) is not None
    for train_iter in range(20):
        run.source.feedback(train_iter, priority=None, info=dict)
        wait_until(lambda number=train_iter: len(run.updates) > number, "a report")

    assert run.core.book.granted_updates <= 3 * 3, "three batches a reply: one being drawn from and two ahead"


def test_an_answer_that_comes_twice_is_consumed_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, last = run.service.sample, []

    def twice(*arguments: Any) -> m.SampleReply:
        """Repeat every answer with batches once: as if the first had been lost."""
        if last and last[-1].batches is not None:
            return last.pop()
        last.append(sample(*arguments))
        return last[-1]

    monkeypatch.setattr(run.service, "sample", twice)
    for _ in range(10):
        run.send()
    drawn = 0
    while run.core.book.waiting_updates or drawn < run.core.book.granted_updates:
        assert run.source.next(timeout_s=60.0) is not None
        drawn += 1
        run.source.feedback(drawn, priority=None, info=dict)

    assert run.source.next(timeout_s=0.3) is None
    assert drawn == run.core.book.granted_updates == run.source.num_received == run.source.num_learned > 10


@pytest.mark.parametrize("error", [RefusedError("stale_attempt", "no more"), CommError("no more")])
def test_what_goes_wrong_in_the_thread_is_raised_in_the_learners(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*arguments: Any) -> Any:
        raise error

    monkeypatch.setattr(run.service, "sample", refuse)

    with pytest.raises(type(error), match="no more"):
        for _ in range(50):
            run.source.next(timeout_s=0.2)
    assert isinstance(run.source.failure, type(error))


def test_closing_does_not_wait_for_what_is_late(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.comm.rest.rows._LATE_S", 600.0)
    run.source.close()
    looked = threading.Event()

    def read(segment: m.NewSegment) -> Any:
        looked.set()
        raise SegmentError("missing", "it has not come")

    source = run.make_source(read, waits_for_late=True)
    run.send()
    assert looked.wait(60)

    source.close()

    assert not [thread for thread in threading.enumerate() if thread.name == "batch-source"]


def test_a_mirror_grows_with_the_rows_that_come_and_loses_none() -> None:
    mirror = Mirror(1 << 20, grows=True)
    for serial, (rows, first) in enumerate([(700, 0), (900, 700), (5000, 1600)], start=1):
        mirror.take(m.NewSegment(serial, "s", rows, first, "x", 1), columns_of("w", serial, rows))

    places, ids = np.arange(6600), np.repeat([1, 2, 3], [700, 900, 5000])
    found = mirror.gather(places)
    assert (found["segment"] == ids).all() and found["row"][[0, 699, 700, 1600]].tolist() == [0, 699, 0, 0]
    assert mirror.are_there(places, (ids << 20) + found["row"]).all()

    mirror.take(m.NewSegment(4, "s", 20_000, 0, "x", 1), None)
    assert not mirror.are_there(places, (ids << 20) + found["row"]).any()


def test_batches_have_as_many_rows_as_the_reply_says() -> None:
    reader = BatchReader(100)
    places = np.arange(12)
    batches = m.Batches(3, places, (1 << 20) + places, None)

    reader.take([(m.NewSegment(1, "s", 12, 0, "x", 1), columns_of("w", 1, 12))], batches)

    assert [reader.draw()["row"].tolist() for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert reader.is_empty


BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


def rows(**changes: Any) -> dict[str, Any]:
    own = {
        "obs": np.zeros((4, 3), np.float32), "next_obs": np.zeros((4, 3), np.float32), "action": np.arange(4) % 2,
        "reward": np.ones(4, np.float32), "terminated": np.zeros(4, bool),
    }  # fmt: skip
    return {**own, **changes}


def with_one(name: str, value: float) -> Any:
    column = np.array(rows()[name], copy=True)
    column.flat[1] = value
    return column


def refuses(check: RowCheck, cases: Sequence[tuple[dict[str, Any], str]]) -> None:
    for columns, said in cases:
        with pytest.raises(SegmentError, match=said) as caught:
            check(columns)
            pytest.fail(f"{columns} passes")
        assert caught.value.code == "schema"


def test_rows_of_no_env_are_refused_even_where_the_schema_has_them() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (dict(obs=np.zeros((4, 2), np.float32)), "column obs has rows"),
        (dict(next_obs=np.zeros((4, 3, 1), np.float32)), "column next_obs has rows"),
        (dict(obs=with_one("obs", np.nan)), "column obs has numbers that are not finite"),
        (dict(reward=with_one("reward", np.inf)), "column reward has numbers that are not finite"),
        (dict(reward=with_one("reward", -np.inf)), "column reward has numbers that are not finite"),
        (dict(reward=with_one("reward", 3e38)), r"column reward .* not finite in a loss: from 1 to 3e\+38, expected"),
        (dict(obs=with_one("obs", -1e15)), "column obs has numbers that are not finite in a loss: from -1e"),
        (dict(action=np.array([0, 1, 2, 0])), "column action has numbers"),
        (dict(action=np.array([0, 1, -1, 0])), "column action has numbers"),
        (dict(action=np.zeros(4, np.float32)), "column action has numbers"),
    ]
    for changes, said in cases:
        refuses(RowCheck(BOX, spaces.Discrete(2), Schema.of(rows(**changes))), [(rows(**changes), said)])


def test_columns_are_those_of_the_schema() -> None:
    check = RowCheck(BOX, spaces.Discrete(2), Schema.of(rows()))
    wrong = (dict(extra=np.zeros(4)), dict(reward=np.ones(4)), dict(action=np.zeros((4, 1), np.int64)))
    short = rows()
    del short["reward"]

    for _ in range(2):
        check(rows())
    refuses(check, [*((rows(**changes), "column") for changes in wrong), (short, "'reward' is missing")])


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.MultiDiscrete([2, 3]), [[1, 2]], [[2, 0]]),
        (spaces.Box(-1.0, 1.0, (2,), np.float32), [[0.5, 9.0]], [[np.nan, 0.0]]),
    ],
)
def test_other_actions(space: Space[Any], good: Any, bad: Any) -> None:
    kind = np.int64 if isinstance(space, spaces.MultiDiscrete) else np.float32
    taken = rows(action=np.array(good * 4, kind))
    check = RowCheck(BOX, space, Schema.of(taken))
    check(taken)

    refuses(check, [(rows(action=np.array(bad * 4, kind)), "column action has")])


def test_dict_observations_are_held_to_their_spaces() -> None:
    own = rows()
    for name in ("obs", "next_obs"):
        own[f"{name}/arm"], own[f"{name}/level"] = own.pop(name), np.zeros(4, np.int64)
    space = spaces.Dict({"arm": BOX, "level": spaces.Discrete(3)})
    RowCheck(space, spaces.Discrete(2), Schema.of(own))(own)

    other = {**own, "obs/arm": np.zeros((4, 9), np.float32)}
    with pytest.raises(SegmentError, match="obs/arm"):
        RowCheck(space, spaces.Discrete(2), Schema.of(other))(other)


SEQUENCES = Schema.of(
    {
        "obs": np.zeros((1, 5, 3), np.float32),
        "action": np.zeros((1, 5), np.int64),
        "reward": np.zeros((1, 5), np.float32),
    }
)


def sequences(**changes: Any) -> dict[str, Any]:
    columns = {"obs": np.ones((2, 5, 3)), "action": np.array([[0, 1, 1, 0, 0]] * 2), "reward": np.ones((2, 5))}
    typed = {name: column.astype(SEQUENCES[name].dtype) for name, column in columns.items()}
    return {**typed, **changes}


def test_sequences_that_are_not_the_policys_are_refused() -> None:
    check = RowCheck(BOX, spaces.Discrete(2), SEQUENCES)
    check(sequences())
    cases: list[tuple[dict[str, Any], str]] = [
        (dict(obs=np.ones((2, 4, 3), np.float32)), "column 'obs' has rows"),
        (dict(obs=np.ones((2, 5, 2), np.float32)), "column 'obs' has rows"),
        (dict(action=np.zeros((2, 4), np.int64)), "column 'action' has rows"),
        (dict(action=np.array([[0, 1, 1, 0, 0], [0, 0, 0, 0, 2]])), "column action has numbers"),
        (dict(reward=np.array([[0, 0, 0, 0, 0], [0, 0, 0, np.nan, 0]], np.float32)), "are not finite"),
    ]
    refuses(check, [(sequences(**changes), said) for changes, said in cases])
    refuses(
        RowCheck(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2), SEQUENCES),  # of another env
        [(sequences(), r"column obs has rows \(5, 3\), the envs give \(4,\)")],
    )
