"""A small reward model of every kind and demonstrations for it: what the contract of reward models shares."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ding_like.data.batch import TransitionBatch
from ding_like.data.demonstrations import Demonstrations
from ding_like.data.segment_file import save_columns
from ding_like.reward_model import create_reward_model
from ding_like.reward_model.base import Sizes
from ding_like.types import Info
from ding_like.utils.seeding import make_rng
from ding_like.worker import BaseLearner
from tests.experts import balance, demonstrate

FOLDER = "REWARD_CASES_FOLDER"  # environment variable: where RecordingLearner writes
SIZES = Sizes(4, 2, is_discrete=True)  # CartPole's
# Settings beside `type` and `data_path`; a model without an entry has none.
SETTINGS: dict[str, dict[str, Any]] = {kind: dict(pretrain_updates=30) for kind in ("red", "trex", "drex")}


def make_demonstrations(path: Path, *, episodes: int = 3, steps: int = 60) -> str:
    """Write episodes of a controller that balances the pole, cut after some steps, and return the file."""
    found = demonstrate(balance, "CartPole-v1", episodes=episodes, max_steps=steps)
    number = found.columns["episode_id"]
    ranks = {"rank": number, "noise": np.float32(1) - number / episodes}
    Demonstrations({**found.columns, **ranks}).save(path)
    return str(path)


def section(kind: str, data_path: str, **settings: Any) -> dict[str, Any]:
    """Return the config section of a small model."""
    own = SETTINGS.get(kind, {})
    return {"type": kind, **({"data_path": data_path} if kind_needs_expert(kind) else {}), **own, **settings}


def kind_needs_expert(kind: str) -> bool:
    """Return whether a kind reads demonstrations."""
    from ding_like.utils.registries import REWARD_MODEL_REGISTRY

    return bool(REWARD_MODEL_REGISTRY.get(kind).needs_expert)


def build(kind: str, data_path: str, *, seed: int = 0, **settings: Any) -> Any:  # Any: a RewardModel
    """Return a small model for CartPole, as a run of this seed has it."""
    return create_reward_model(
        section(kind, data_path, **settings), SIZES, seed=seed, rng=make_rng(seed, "reward_model"), log_prob=log_prob
    )


def log_prob(obs: torch.Tensor, action: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return log probabilities [N] of a policy that follows the pole's angle."""
    right = functional.logsigmoid(torch.stack([-obs[:, 2], obs[:, 2]], dim=1))
    return right.gather(1, action[:, None])[:, 0]


def batch_of(rows: int, *, seed: int = 0, steps: int = 0) -> TransitionBatch:
    """Return random rows, or sequences of `steps` steps of which the second has ended after half of them."""
    rng = np.random.default_rng(seed)
    lead = (rows, steps) if steps else (rows,)
    columns: dict[str, Any] = {
        "action": rng.integers(2, size=lead),
        "reward": rng.normal(size=lead).astype(np.float32),
        "terminated": rng.random(lead) < 0.1,
        "truncated": np.zeros(lead, bool),
        "log_prob": np.log(rng.uniform(0.2, 0.8, size=lead)).astype(np.float32),
    }
    if steps:
        num_steps = np.full(rows, steps)
        num_steps[1] = steps // 2
        columns |= {"num_steps": num_steps, "mask": np.arange(steps) < num_steps[:, None]}
        columns["reward"] *= columns["mask"]  # beyond an episode a row is zero
        columns["obs"] = rng.normal(size=(rows, steps + 1, 4)).astype(np.float32)
    else:
        columns |= {name: rng.normal(size=(rows, 4)).astype(np.float32) for name in ("obs", "next_obs")}
    return TransitionBatch(columns)


class RecordingLearner(BaseLearner):
    """Learner that writes the first batches as the policy gets them, with the env's rewards beside the model's."""

    def _prepared(self, data: Any) -> Any:
        batch = super()._prepared(data)
        folder = Path(os.environ[FOLDER])
        found = len(list(folder.glob("*.safetensors")))
        if found < 4:
            columns = {name: np.asarray(batch[name]) for name in ("obs", "next_obs", "action", "reward", "terminated")}
            path = folder / f"{os.getpid()}_{found}.safetensors"
            save_columns(path, {**columns, "env_reward": np.asarray(data["reward"])})
        return batch

    def compute_gradients(self, minibatch: Any) -> Info:
        info = super().compute_gradients(minibatch)
        (Path(os.environ[FOLDER]) / f"info_{os.getpid()}.json").write_text(json.dumps(sorted(info)))
        return info


def same_bits(first: Any, second: Any) -> bool:
    """Return whether two nested states are equal to the last bit."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same_bits(first[name], second[name]) for name in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same_bits, first, second))
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    return bool(np.array_equal(first, second))
