"""Heartbeats of a group: an old beat is silence, and how a rank has ended is reported to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from torch._C._distributed_c10d import HashStore

from ding_like.comm.learner_group import Heartbeats, Seen

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
