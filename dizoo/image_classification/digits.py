"""Learn the 1,797 digits that ship with scikit-learn: `python -m dizoo.image_classification.digits --seed 0`.

Needs `pip install "ding-like[imageclassification]"`. A quarter of the images, drawn by class, is held out: none of
them is trained on, and the last model is judged by them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.pipeline.process import training_process
from ding_like.types import Array
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.registries import install_hint
from ding_like.utils.seeding import make_rng, set_pkg_seed
from ding_like.worker import BaseLearner, MetricSerialEvaluator
from dizoo.image_classification.metric import ClassificationMetric
from dizoo.image_classification.policy import ImageClassificationPolicy

main_config = EasyDict(
    exp_name="digits_seed0",
    policy=dict(
        model=dict(obs_shape=[1, 8, 8], num_classes=10),
        eval=dict(evaluator=dict(eval_freq=200)),
    ),
)


class Batches:
    """Images [N, 1, 8, 8] float32 from 0 to 1 and labels [N] int64; iterating yields batches, in order."""

    def __init__(self, images: Array, labels: Array, *, batch_size: int) -> None:
        self.images, self.labels, self.batch_size = images, labels, batch_size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for start in range(0, len(self.labels), self.batch_size):
            rows = slice(start, start + self.batch_size)
            yield torch.from_numpy(self.images[rows]), torch.from_numpy(self.labels[rows])

    def shuffled(self, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield one pass over all rows in random order."""
        order = rng.permutation(len(self.labels))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            yield TransitionBatch({"obs": self.images[rows], "label": self.labels[rows]})


def load_digits(*, batch_size: int, seed: int) -> tuple[Batches, Batches]:
    """Return the training set and the held-out quarter, which depends on the seed."""
    try:
        from sklearn import datasets, model_selection
    except ImportError as error:
        raise ConfigError(f"the digits come with scikit-learn{install_hint(error)}") from error

    digits = datasets.load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    parts = model_selection.train_test_split(
        images, digits.target.astype(np.int64), test_size=0.25, random_state=seed, stratify=digits.target
    )
    return Batches(parts[0], parts[2], batch_size=batch_size), Batches(parts[1], parts[3], batch_size=batch_size)


def train(config: Any = main_config, *, seed: int = 0, exp_name: str | None = None) -> dict[str, float]:
    """Train to the end and return the last model's metric on the held-out images."""
    policy_cfg = EasyDict(deep_merge(ImageClassificationPolicy.default_config(), config["policy"]))
    folder = exp_name or config["exp_name"]
    set_pkg_seed(seed, use_cuda=False)
    training_set, held_out = load_digits(batch_size=policy_cfg.learn.batch_size, seed=seed)
    evaluator_cfg = deep_merge(MetricSerialEvaluator.config, policy_cfg.eval.evaluator)
    shared: dict[str, Any] = dict(tb_logger=MetricsSink(folder), exp_name=folder)
    with training_process():
        policy = ImageClassificationPolicy(policy_cfg, enable_field=["learn", "eval"])
        learner = BaseLearner({}, policy=policy.learn_mode, **shared)
        evaluator = MetricSerialEvaluator(evaluator_cfg, (held_out, ClassificationMetric()), policy.eval_mode, **shared)
        try:
            rng = make_rng(seed, "batches")
            learner.call_hook("before_run")
            for _ in range(policy_cfg.learn.epochs):
                for batch in training_set.shuffled(rng):
                    if evaluator.should_eval(learner.train_iter):
                        evaluator.eval(learner.save_checkpoint, learner.train_iter)
                    learner.train(batch)
            learner.call_hook("after_run")
            found: dict[str, float] = evaluator.measure()
            return found
        finally:
            evaluator.close()
            learner.close()
            shared["tb_logger"].close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exp-name", help="folder of logs and checkpoints (default: digits_seed<seed>)")
    args = parser.parse_args()
    folder = args.exp_name or f"digits_seed{args.seed}"
    found = train(seed=args.seed, exp_name=folder)
    values = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
    print(f"held out: {values}; checkpoints in {Path(folder, 'ckpt')}")


if __name__ == "__main__":
    main()
