"""Small reward models that learn from an expert: what their tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.data.demonstrations import Demonstrations
from ding_like.reward_model import create_reward_model
from ding_like.reward_model.base import Sizes
from tests.reward_model.rows import BOX, DISCRETE, SEVERAL, means_of_two, one_hot, rows_of, run_two, step

SIZES = {"discrete": DISCRETE, "several": SEVERAL, "box": BOX}
EXPERT_ROWS = 40
# Settings of each model that make its tests short.
SMALL: dict[str, dict[str, Any]] = {
    "gail": dict(hidden_size_list=[8, 5], update_per_collect=2),
    "airl": dict(hidden_size_list=[8, 5], update_per_collect=2, learning_rate=1e-2),
    "guided_cost": dict(hidden_size_list=[8, 5], update_per_collect=2, learning_rate=1e-2),
    "red": dict(hidden_size_list=[8, 5], output_size=4, pretrain_updates=5),
    "pdeil": dict(window=30),
}


def expert_of(sizes: Sizes) -> TransitionBatch:
    """Return the steps of an expert."""
    batch = rows_of(99, sizes, EXPERT_ROWS)
    place = np.arange(EXPERT_ROWS)
    ends = place % 10 == 9
    return batch.with_columns(
        obs=0.5 * batch["obs"] + 1,
        terminated=ends,
        truncated=np.zeros(EXPERT_ROWS, bool),
        lane=np.zeros(EXPERT_ROWS, np.int64),
        episode_id=place // 10,
        step=place % 10,
    )


def log_prob(obs: Any, action: Tensor, mask: Tensor | None) -> Tensor:
    """Return log probabilities of no policy in particular, which depend on observations and actions."""
    assert mask is None
    return -0.5 - 0.1 * obs.square().mean(dim=1) - 0.2 * action.float().reshape(len(obs), -1).square().sum(dim=1)


def make(
    kind: str,
    folder: Path,
    sizes: Sizes = DISCRETE,
    *,
    seed: int = 0,
    mean: Any = None,
    log_prob: Any = log_prob,
    **changes: Any,
) -> Any:
    """Return a small reward model whose expert is `expert_of`."""
    path = folder / "expert.safetensors"
    if not path.exists():
        Demonstrations(expert_of(sizes).columns).save(path)
    cfg = dict(type=kind, data_path=str(path), batch_size=16)
    return create_reward_model(
        {**cfg, **SMALL[kind], **changes},
        sizes,
        seed=seed,
        rng=np.random.default_rng(seed),
        mean=mean,
        log_prob=log_prob,
    )


def rows_as_tensors(batch: TransitionBatch, sizes: Sizes) -> list[dict[str, Any]]:
    """Return rows one by one, in double precision, each column with an axis for the row in front."""
    return [
        dict(
            obs=torch.tensor(row["obs"]).double()[None],
            next_obs=torch.tensor(row["next_obs"]).double()[None],
            action=one_hot(row["action"], sizes).double()[None],
            terminated=bool(row["terminated"]),
            log_prob=float(log_prob(torch.tensor(row["obs"])[None], torch.tensor(np.array(row["action"]))[None], None)),
        )
        for row in batch
    ]


def in_double(run: Callable[[], Any]) -> Any:
    """Return what `run` does while networks lay observations out in double precision."""
    torch.set_default_dtype(torch.float64)
    try:
        return run()
    finally:
        torch.set_default_dtype(torch.float32)


def two_learners(kind: str, folders: list[Path], num_batches: int, sizes: Sizes = DISCRETE) -> list[Any]:
    """Return the models of two learners that learned in step, each from batches of its own."""
    models = [make(kind, folder, sizes, mean=mean) for folder, mean in zip(folders, means_of_two(), strict=True)]
    for rank, model in enumerate(models):
        model._rng = np.random.default_rng(rank)  # as of learners of other ranks: only the weights' seed is the same

    def learn(rank: int) -> None:
        for number in range(num_batches):
            step(models[rank], rows_of(10 * rank + number, sizes))

    run_two(learn)
    return models
