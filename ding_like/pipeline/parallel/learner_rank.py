"""Be one of several learners, not the first: take shares of batches until there are no more.

Started by LearnerAggregator: python -m <this module> CONFIG STORE RANK NUM SEED [KEY=VALUE...]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ding_like.comm.learner_group import GroupReducer, LearnerGroup
from ding_like.config import compile_config, read_config
from ding_like.pipeline.build import build_learner, build_policy, fit_policy_config, training_process
from ding_like.pipeline.parallel.final_evaluation import FinalEvaluation
from ding_like.pipeline.parallel.learner_aggregator import STATE_FILE, unpack
from ding_like.policy.share import Share
from ding_like.utils.checkpoint import load_state
from ding_like.utils.parent import watch_parent
from ding_like.utils.seeding import make_rng, set_rng_state


def main(argv: Sequence[str]) -> None:
    """Build the policy of a config, take the first learner's state, and train beside it."""
    watch_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    config, store, rank, world_size, seed, *overrides = argv
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
    group = LearnerGroup(store, rank=int(rank), world_size=int(world_size), timeout_s=60.0)
    with training_process():
        final_evaluation = FinalEvaluation(cfg, seed=int(seed))
        try:
            policy = build_policy(fit_policy_config(cfg.policy, final_evaluation.env), seed=int(seed))
        finally:
            final_evaluation.close()
        policy.set_share(Share(int(rank), int(world_size)))
        mode, rng = policy.learn_mode, make_rng(int(seed), "learner")
        learner = build_learner(
            cfg,
            policy,
            seed=int(seed),
            rng=rng,
            reducer=GroupReducer(group, policy.grad_vectors(), weight=policy.grad_weight),
            rank=int(rank),
            num_learners=int(world_size),
        )
        try:
            while (share := group.scatter(None)) is not None:
                batch, header = unpack(share)
                if "train_iter" in header:  # the first learner's state has changed otherwise than by training
                    mode.load_state_dict(load_state(Path(store).parent / STATE_FILE, what="the first learner's state"))
                    learner.last_iter.update(int(header["train_iter"]))
                    continue
                if "rng" in header:
                    set_rng_state(rng, header["rng"])
                learner.train(batch)
                if learner.priority_info:
                    group.gather(np.asarray(learner.priority_info["priority"]))
        finally:
            learner.close()
            group.close()


if __name__ == "__main__":
    main(sys.argv[1:])
