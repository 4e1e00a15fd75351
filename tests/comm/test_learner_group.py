"""Learners join, exchange numbers, and say which of them is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch._C._distributed_c10d import HashStore

from ding_like.comm import learner_group
from ding_like.comm.learner_group import GLOO, GLOO_AND_NCCL, Heartbeats, LearnerGroup, Place, Seen, choose_backend
from ding_like.errors import CommError, ConfigError
from tests.comm import group_rank

ROOT = Path(__file__).parents[2]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
WAIT_S = 60.0


def command(store: Path | str, rank: int, scene: str, *, size: int = 2, timeout_s: float = 20.0) -> list[str]:
    return [sys.executable, "-m", "tests.comm.group_rank", str(store), str(rank), str(size), str(timeout_s), scene]


@contextmanager
def processes(commands: Sequence[Sequence[str]], env: dict[str, str] | None = None) -> Iterator[list[Any]]:
    """Run commands side by side; all are gone in the end."""
    started = [
        subprocess.Popen(each, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **(env or {}), **ONE_THREAD})
        for each in commands
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate(timeout=WAIT_S)


def said(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=WAIT_S)
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each of two ranks found in every short scene."""
    store = tmp_path_factory.mktemp("group") / "store"
    with processes([command(store, rank, "all_short") for rank in range(2)]) as ranks:
        return [said(each)["result"] for each in ranks]


def test_gradients_are_averaged_by_weight(pair: list[dict[str, Any]]) -> None:
    assert [each["average"] for each in pair] == [[[1.75] * 3, [17.5]]] * 2


def test_rows_of_all_ranks_come_in_the_order_of_ranks(pair: list[dict[str, Any]]) -> None:
    first, second = group_rank.rows_of(0), group_rank.rows_of(1)
    wanted = {
        name: [str(first[name].dtype), np.concatenate([first[name], second[name]]).tolist()] for name in first.columns
    }

    assert pair[0]["gather_columns"] == pair[1]["gather_columns"] == wanted


def test_a_rank_may_have_no_rows(pair: list[dict[str, Any]]) -> None:
    wanted = group_rank.described(group_rank.rows_of(0))

    assert pair[0]["gather_nothing_of_one"] == pair[1]["gather_nothing_of_one"] == wanted


def test_rows_of_other_shapes_are_refused_by_all(pair: list[dict[str, Any]]) -> None:
    for each in pair:
        assert "learner rank 1 of 2 has rows of {'obs': 'float32[4]'}" in each["gather_other_columns"]


def test_values_and_shares_may_be_of_unequal_length(pair: list[dict[str, Any]]) -> None:
    assert [each["gather_unequal"] for each in pair] == [[0, 1, 10, 11, 12], None]
    assert [each["scatter_unequal"] for each in pair] == ["a", "long"]
    assert [each["scatter_nothing"] for each in pair] == [True, True]


def test_a_state_travels_exactly(pair: list[dict[str, Any]]) -> None:
    wanted = {
        "weight": ["torch.float32", [[0, 3], [1, 4], [2, 5]]],
        "half": ["torch.bfloat16", [0.5, 3.0]],
        "count": ["torch.int64", 7],
        "empty": ["torch.float32", []],
    }

    assert pair[0]["state_of_first"] == pair[1]["state_of_first"] == wanted


def test_whole_numbers_are_exact(pair: list[dict[str, Any]]) -> None:
    assert [each["whole_numbers"] for each in pair] == [[[1, 10], [2**60 + 1, 5]]] * 2
    assert [each["json_of_second"] for each in pair] == [{"lr": 0.5, "of": 1}] * 2


def test_a_rank_that_differs_in_one_bit_is_found(pair: list[dict[str, Any]]) -> None:
    assert [each["differing"] for each in pair] == [[[], [1]]] * 2


# --- joining


def test_nccl_is_chosen_where_each_rank_has_a_gpu() -> None:
    cases: list[tuple[list[tuple[int, int, int]], str]] = [
        ([(0, 2, 0), (1, 2, 0)], GLOO),
        ([(0, 2, 1), (1, 2, 1)], GLOO),
        ([(0, 2, 2), (1, 2, 2)], GLOO_AND_NCCL),
        ([(0, 1, 1)], GLOO_AND_NCCL),
        ([(0, 2, 8), (1, 2, 8), (0, 2, 2), (1, 2, 2)], GLOO_AND_NCCL),
        ([(0, 2, 8), (1, 2, 8), (0, 1, 0)], GLOO),
        ([], GLOO),
    ]
    for places, wanted in cases:
        assert choose_backend([Place(*each) for each in places]) == wanted, places


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.slow
def test_ranks_join_by_the_environment(tmp_path: Path) -> None:
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    with (
        processes([command("env", 0, "average")], {**env, "RANK": "0"}) as first,
        processes([command("env", 1, "average")], {**env, "RANK": "1"}) as second,
    ):
        found = [said(each) for each in (*first, *second)]

    assert found == [{"rank": rank, "result": [[1.75] * 3, [17.5]]} for rank in range(2)]


@pytest.mark.slow
def test_torchrun_starts_the_ranks(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--local-addr", "127.0.0.1"]
    rank = ["-m", "tests.comm.group_rank", "env", "-1", "2", "20", "waits_for_first"]
    with processes([[sys.executable, *torchrun, *rank]]) as (started,):
        output, _ = started.communicate(timeout=WAIT_S)

    found = sorted((json.loads(line) for line in output.splitlines()), key=lambda each: each["rank"])
    assert found == [{"rank": rank, "result": ["20.5", "again"]} for rank in range(2)]


def test_an_environment_that_lacks_something_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(ConfigError, match="MASTER_PORT not set"):
        LearnerGroup.from_environment()

    monkeypatch.setenv("MASTER_PORT", "many")
    with pytest.raises(ConfigError, match="MASTER_PORT is 'many'"):
        LearnerGroup.from_environment()


def test_a_rank_that_does_not_join_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommError, match="learner rank 1 of 2 has not joined within 0.5 s"):
        LearnerGroup(tmp_path / "store", rank=0, world_size=2, join_s=0.5)


def test_a_process_is_in_one_group_at_a_time(tmp_path: Path) -> None:
    with (
        LearnerGroup(tmp_path / "one", rank=0, world_size=1),
        pytest.raises(CommError, match="learner rank 0 of 1 cannot join"),
    ):
        LearnerGroup(tmp_path / "two", rank=0, world_size=1)

    LearnerGroup(tmp_path / "three", rank=0, world_size=1).close()


# --- lost ranks: this process is the first


@contextmanager
def beside(folder: Path, scene: str, *, timeout_s: float = 20.0) -> Iterator[tuple[LearnerGroup, Any]]:
    store = folder / "store"
    with processes([command(store, 1, scene, timeout_s=timeout_s)]) as (other,):
        group = LearnerGroup(store, rank=0, world_size=2, timeout_s=timeout_s, join_s=WAIT_S)
        try:
            group.sum_int([1])
            yield group, other
        finally:
            group.close()


def test_a_killed_rank_is_named_and_nothing_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_group, "SILENT_S", 2.5)
    with beside(tmp_path, "sums_until_failure") as (group, other):
        other.kill()

        for _ in range(2):
            with pytest.raises(CommError, match=r"^learner rank 1 of 2 has not answered for \d s$"):
                sums(group)


def sums(group: LearnerGroup, number: int = 1000) -> None:
    for _ in range(number):
        group.sum_int([1])


@pytest.mark.slow
def test_a_stopped_rank_is_named_after_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_group, "SILENT_S", 2.5)
    with beside(tmp_path, "sums_until_failure", timeout_s=1.0) as (group, other):
        os.kill(other.pid, signal.SIGSTOP)

        with pytest.raises(CommError, match=r"^learner rank 1 of 2 has not answered for \d s$"):
            sums(group, 10**6)


@pytest.mark.slow
def test_a_stopped_rank_is_found_before_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_group, "SILENT_S", 2.5)
    with beside(tmp_path, "sums_until_failure") as (group, other):
        os.kill(other.pid, signal.SIGSTOP)

        with pytest.raises(CommError, match="alive, but nothing has come for 0.1 s"):
            group.wait_for("never", of=[1], timeout_s=0.1)
        assert re.fullmatch(r"learner rank 1 of 2 has not answered for \d s", group.find_lost())


@pytest.mark.slow
def test_a_rank_that_lives_and_does_not_come_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_group, "SILENT_S", 2.5)
    with (
        beside(tmp_path, "late", timeout_s=1.0) as (group, _),
        pytest.raises(CommError, match="rank 1 of 2: alive, but has not come to collective 2 of .*give a larger"),
    ):
        group.sum_int([1])


@pytest.mark.slow
def test_a_rank_that_fails_says_why(tmp_path: Path) -> None:
    with (
        beside(tmp_path, "fails") as (group, _),
        pytest.raises(CommError, match="^learner rank 1 of 2 has ended: ValueError: no such env$"),
    ):
        group.sum_int([1])


@pytest.mark.slow
def test_the_first_may_take_longer_than_an_operation(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with processes([command(store, rank, "waits_for_first", timeout_s=1.5) for rank in range(2)]) as ranks:
        assert [said(each) for each in ranks] == [{"rank": rank, "result": ["20.5", "again"]} for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "how"),
    [
        ("key_of_lost_first", signal.SIGKILL),
        ("json_of_lost_first", signal.SIGKILL),
        ("json_of_lost_first", signal.SIGSTOP),
    ],
)
def test_waiting_for_the_first_ends_with_it(tmp_path: Path, scene: str, how: signal.Signals) -> None:
    store = tmp_path / "store"
    with processes([command(store, rank, scene, timeout_s=3.0) for rank in range(2)]) as (first, second):
        assert first.stdout.readline() == b"joined\n"
        os.kill(first.pid, how)

        found = said(second)

    assert found["error"].startswith("learner rank 0 of 2 has not answered for ")


EVERY_S = 0.02

Begin = Callable[[int], Heartbeats]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Return a function that starts the heartbeats of a rank of three, in one store."""
    store = HashStore()
    with ExitStack() as stack:

        def begin_one(rank: int) -> Heartbeats:
            heartbeats = Heartbeats(store, rank=rank, world_size=3, every_s=EVERY_S)
            stack.callback(heartbeats.close)
            return heartbeats

        yield begin_one


def seen_of(heartbeats: Heartbeats, rank: int, until: Callable[[Seen], bool]) -> Seen:
    """Return what is known of a rank once it is as wanted, or after many looks."""
    for _ in range(200):
        if until(found := heartbeats.seen()[rank]):
            break
        heartbeats.wait_for_look(1.0)
    return found


def test_an_old_beat_is_silence(begin: Begin) -> None:
    first, second = begin(0), begin(1)
    second.num_calls = 7
    assert seen_of(first, 1, lambda seen: seen.num_calls == 7).num_calls == 7

    second.close()  # its last beat stays in the store

    assert seen_of(first, 1, lambda seen: seen.silent_s > 10 * EVERY_S).silent_s > 10 * EVERY_S


def test_the_end_of_a_rank_is_reported_to_the_others(begin: Begin) -> None:
    first, second = begin(0), begin(1)

    first.note_ended(2, "was killed by SIGKILL")

    assert first.seen()[2].ended == "was killed by SIGKILL"
    assert seen_of(second, 2, lambda seen: seen.ended is not None).ended == "was killed by SIGKILL"


def test_a_rank_reports_why_it_leaves(begin: Begin) -> None:
    first, second = begin(0), begin(1)

    second.close("ValueError: no such env")

    assert seen_of(first, 1, lambda seen: seen.ended is not None).ended == "has ended: ValueError: no such env"
