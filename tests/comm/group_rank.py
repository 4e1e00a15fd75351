"""Be a learner of a group, in a process of its own: python -m tests.comm.group_rank STORE RANK SIZE TIMEOUT_S SCENE.

STORE "env" joins by the environment. What a scene returns, or the CommError it ends with, is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ding_like.comm.learner_group import LearnerGroup
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError

Scene = Callable[[LearnerGroup], Any]


def average(group: LearnerGroup) -> list[list[float]]:
    vectors = [torch.full((3,), 1.0 + group.rank), torch.tensor([10.0 * (group.rank + 1)])]
    group.average(vectors, weight=0.25 if group.rank == 0 else 0.75)
    return [vector.tolist() for vector in vectors]


def rows_of(rank: int) -> TransitionBatch:
    rng = np.random.default_rng(rank)
    rows = 3 + 2 * rank
    return TransitionBatch(
        {
            "obs": rng.standard_normal((rows, 4)).astype(np.float32),
            "image": rng.integers(0, 255, (rows, 2, 2), dtype=np.uint8),
            "action": rng.integers(0, 9, rows),
            "terminated": rng.random(rows) < 0.5,
            "step": np.arange(rows, dtype=np.float64),
        }
    )


def described(batch: TransitionBatch) -> dict[str, Any]:
    return {name: [str(column.dtype), column.tolist()] for name, column in batch.columns.items()}


def gather_columns(group: LearnerGroup) -> dict[str, Any]:
    return described(group.all_gather_columns(rows_of(group.rank)))


def gather_nothing_of_one(group: LearnerGroup) -> dict[str, Any]:
    batch = rows_of(0)
    return described(group.all_gather_columns(batch if group.rank == 0 else batch[:0]))


def gather_other_columns(group: LearnerGroup) -> str:
    columns = {"obs": np.zeros((2, 3 + group.rank), np.float32)}
    try:
        group.all_gather_columns(TransitionBatch(columns))
    except CommError as error:
        return str(error)
    return ""


def gather_unequal(group: LearnerGroup) -> Any:
    found = group.gather(np.arange(2 + group.rank) + 10.0 * group.rank)
    return None if found is None else found.tolist()


def scatter_unequal(group: LearnerGroup) -> str:
    own = group.scatter([b"a", b"long"] if group.rank == 0 else None)
    return "" if own is None else own.decode()


def scatter_nothing(group: LearnerGroup) -> bool:
    return group.scatter(None) is None


def state_of_first(group: LearnerGroup) -> dict[str, Any]:
    state = {
        "weight": torch.arange(6.0).reshape(2, 3).T,
        "half": torch.tensor([0.5, 3.0], dtype=torch.bfloat16),
        "count": torch.tensor(7),
        "empty": torch.zeros(0, 3),
    }
    found = group.broadcast_state(state if group.rank == 0 else None)
    return {name: [str(each.dtype), each.tolist()] for name, each in found.items()}


def whole_numbers(group: LearnerGroup) -> list[list[int]]:
    own = [2**60 + group.rank, 5 - group.rank]
    return [group.sum_int([group.rank, 5]).tolist(), group.max_int(own).tolist()]


def differing(group: LearnerGroup) -> list[list[int]]:
    same = [torch.ones(3), torch.tensor([2.5], dtype=torch.bfloat16), torch.tensor(3)]
    other = torch.tensor([1.0 + group.rank * 1e-7])
    return [group.differing(same), group.differing([*same, other])]


def json_of_second(group: LearnerGroup) -> Any:
    return group.broadcast_json({"lr": 0.5, "of": group.rank} if group.rank == 1 else None, source=1)


def sums_until_failure(group: LearnerGroup) -> None:
    while True:
        group.sum_int([1])


def late(group: LearnerGroup) -> None:
    group.sum_int([1])
    if group.rank == 1:
        threading.Event().wait(60)  # it sends heartbeats; it is killed by then
    group.sum_int([1])


def fails(group: LearnerGroup) -> None:
    group.sum_int([1])
    if group.rank == 1:
        raise ValueError("no such env")
    group.sum_int([1])


def waits_for_first(group: LearnerGroup) -> list[str]:
    """Wait for the first rank for longer than an operation may take."""
    group.sum_int([1])
    if group.rank == 0:
        threading.Event().wait(2.0)
        group.announce("evaluated/1", "20.5")
        threading.Event().wait(2.0)
    return [group.wait_for("evaluated/1"), group.broadcast_json("again" if group.rank == 0 else None)]


def key_of_lost_first(group: LearnerGroup) -> str:
    lose_first(group)
    return group.wait_for("never")


def json_of_lost_first(group: LearnerGroup) -> Any:
    lose_first(group)
    return group.broadcast_json()


def lose_first(group: LearnerGroup) -> None:
    group.sum_int([1])
    if group.rank == 0:
        print("joined", flush=True)
        threading.Event().wait(60)  # it is killed or stopped by then


def average_on_gpu(group: LearnerGroup) -> dict[str, Any]:
    vector = torch.full((3,), 1.0 + group.rank, device="cuda")
    group.average([vector], weight=0.25 if group.rank == 0 else 0.75)
    return {"backend": group.backend, "device": str(vector.device), "mean": vector.tolist()}


def average_on_gpu_until_failure(group: LearnerGroup) -> None:
    average_on_gpu(group)
    print("joined", flush=True)
    while True:
        average_on_gpu(group)


SHORT: list[Scene] = [
    *(average, gather_columns, gather_nothing_of_one, gather_other_columns, gather_unequal, scatter_unequal),
    *(scatter_nothing, state_of_first, whole_numbers, differing, json_of_second),
]


def all_short(group: LearnerGroup) -> dict[str, Any]:
    return {scene.__name__: scene(group) for scene in SHORT}


def main(store: str, rank: str, size: str, timeout_s: str, scene: str) -> None:
    try:
        if store == "env":
            joined = LearnerGroup.from_environment(timeout_s=float(timeout_s), join_s=60)
        else:
            joined = LearnerGroup(store, rank=int(rank), world_size=int(size), timeout_s=float(timeout_s), join_s=60)
        with joined as group:
            said = {"rank": group.rank, "result": globals()[scene](group)}
    except CommError as error:
        said = {"rank": int(rank), "error": str(error)}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
