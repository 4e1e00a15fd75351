"""Say what the numbers may be that every policy has; those of an algorithm stand beside its `config`."""

from __future__ import annotations

from collections.abc import Mapping

from ding_like.utils.bounds import ABOVE_0, FINITE, FROM_0, FROM_1, SHARE, Bounds

# Passes over the data of one collection. A million updates of 1 ms are 17 minutes, in which nothing is collected,
# evaluated or saved: more is a slip, and would look like a run that hangs.
PER_COLLECT = Bounds(1, 1_000_000)
# What is collected before an update; more is a slip too.
COLLECTED = Bounds(1, 10_000_000)

POLICY_BOUNDS: Mapping[str, Bounds] = {
    "discount_factor": SHARE,
    "nstep": FROM_1,
    "random_collect_size": FROM_0,
    "action_low": FINITE,
    "action_high": FINITE,
    "learn.update_per_collect": PER_COLLECT,
    "learn.batch_size": FROM_1,
    "learn.learning_rate": ABOVE_0,
    "learn.grad_clip_norm": ABOVE_0,
    "learn.max_nonfinite_steps": FROM_1,
    "learn.optimizer.alpha": SHARE,
    "learn.optimizer.eps": ABOVE_0,
    "learn.optimizer.momentum": SHARE,
    "learn.optimizer.weight_decay": FROM_0,
    "collect.n_sample": COLLECTED,
    "collect.n_episode": COLLECTED,
    "collect.unroll_len": FROM_1,
    "unroll_len": FROM_1,
}
