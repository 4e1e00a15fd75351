"""Ranks of one process average as those of several do, and do not wait for one that has left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ding_like.comm.workers.thread_ranks import ThreadRanks
from ding_like.errors import CommError


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Call each in a thread of its own; return what they return or raise."""
    found: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        try:
            found[place] = calls[place]()
        except CommError as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    return found


def test_every_rank_has_the_same_bits_of_the_weighted_mean() -> None:
    ranks = [ThreadRanks("bits", rank=rank, world_size=3, timeout_s=60.0) for rank in range(3)]
    vectors = [[torch.randn(50), torch.randn(3)] for _ in ranks]
    weights = [0.5, 0.3, 0.2]
    wanted = sum(weight * own[0] for weight, own in zip(weights, vectors, strict=True))

    for _ in range(20):
        together(
            *(lambda r=r, v=v, w=w: r.average(v, weight=w) for r, v, w in zip(ranks, vectors, weights, strict=True))
        )
        torch.testing.assert_close(vectors[0][0], wanted)
        assert all(torch.equal(vectors[0][place], own[place]) for own in vectors for place in range(2))
        wanted = vectors[0][0].clone()  # the mean of equal vectors is that vector


def test_a_rank_that_leaves_or_is_late_is_not_waited_for() -> None:
    first, second = (ThreadRanks("leaves", rank=rank, world_size=2, timeout_s=60.0) for rank in range(2))
    late = ThreadRanks("late", rank=0, world_size=2, timeout_s=0.05)

    waited, _ = together(lambda: first.average([torch.ones(1)], weight=0.5), second.close)

    assert isinstance(waited, CommError) and "another one has left" in str(waited)
    with pytest.raises(CommError, match=r"has not come within 0\.05 s"):
        late.average([torch.ones(1)], weight=0.5)


def test_meetings_of_other_names_have_nothing_to_do_with_each_other() -> None:
    one = ThreadRanks("one", rank=0, world_size=1)
    ThreadRanks("two", rank=0, world_size=2).close()
    vector = torch.ones(2)

    one.average([vector], weight=1.0)

    assert torch.equal(vector, torch.ones(2))
