"""Process of one of several learners, not the first: it trains on shares of batches until there are no more.

Started by LearnerAggregator: python -m <this module> CONFIG STORE RANK NUM SEED TIMEOUT_S [KEY=VALUE...]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

import numpy as np

from ding_like.comm.column_bytes import unpack_batch
from ding_like.comm.learner_group import LearnerGroup
from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.pipeline.build import build_learner, training_process
from ding_like.pipeline.learners.joined import EqualityCheck, join_policy, share_state
from ding_like.pipeline.parallel.final_evaluation import build_policy_alone
from ding_like.policy import Policy
from ding_like.utils.parent import watch_parent
from ding_like.utils.seeding import make_rng, set_rng_state


def main(argv: Sequence[str]) -> None:
    """Build the policy of a config, take the first learner's state, and train beside it."""
    watch_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    config, store, rank, world_size, seed, timeout_s, *overrides = argv
    file = read_config(config)
    cfg = compile_config(
        file.main_config,
        file.create_config,
        seed=int(seed),
        overrides=overrides,
        source=config,
        save=False,
        renew_dir=False,
    )
    with training_process():
        # Before the policy is built: with a GPU for each learner, the group says which is whose.
        with LearnerGroup(store, rank=int(rank), world_size=int(world_size), timeout_s=float(timeout_s)) as group:
            _train(cfg, build_policy_alone(cfg, seed=int(seed)), group, seed=int(seed))


def _train(cfg: FrozenConfig, policy: Policy, group: LearnerGroup, *, seed: int) -> None:
    """Train on shares until the first learner has no more."""
    rng = make_rng(seed, "learner")
    equality = EqualityCheck(group, policy)
    learner = build_learner(
        cfg,
        policy,
        seed=seed,
        rng=rng,
        reducer=join_policy(group, policy),
        rank=group.rank,
        num_learners=group.world_size,
    )
    try:
        while (share := group.scatter(None)) is not None:
            batch, header = unpack_batch(share)
            if "train_iter" in header:  # the first learner's state has changed otherwise than by training
                policy.learn_mode.load_state_dict(share_state(group))
                learner.last_iter.update(int(header["train_iter"]))
                continue
            if "compared_at" in header:
                equality.check(int(header["compared_at"]))
                continue
            if "rng" in header:
                set_rng_state(rng, header["rng"])
            learner.train(batch)
            if cfg.policy.priority and learner.priority_info:
                group.gather(np.asarray(learner.priority_info["priority"]))
    finally:
        learner.close()


if __name__ == "__main__":
    main(sys.argv[1:])
