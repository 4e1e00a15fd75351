"""The cases of policies whose gradient is computed in one process and applied in another, and how both sides do it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.policy import Policy
from tests.contracts.policy_cases import CASES, Case, by_family, deep_merge, rows_of

_PER: dict[str, Any] = dict(priority=True, priority_IS_weight=True)
_LINES: dict[str, Any] = dict(env_steps=300, lr_end=1e-5)


def _with(name: str, **settings: Any) -> Case:
    case = CASES[name]
    return Case(case.policy, case.space, deep_merge(case.settings, settings), case.import_names)


GRAD_CASES: dict[str, Case] = {
    **CASES,
    "dqn prioritised": _with("dqn", **_PER, learn=dict(target_update_freq=7, grad_clip_norm=0.1)),
    "dqn nstep": _with("dqn", nstep=3, learn=dict(optimizer=dict(type="rmsprop", momentum=0.5))),
    "rainbow prioritised": _with("rainbow", **_PER, learn=dict(target_update_freq=7, grad_clip_norm=0.1)),
    "rainbow prioritised autograd": _with("rainbow autograd", **_PER, learn=dict(target_theta=0.1)),
    "c51 prioritised": _with("c51 dueling", **_PER, nstep=3, learn=dict(target_update_freq=7, grad_clip_norm=0.1)),
    "qrdqn prioritised": _with("qrdqn dueling", **_PER, nstep=3, learn=dict(target_theta=0.1)),
    "iqn prioritised": _with("iqn", **_PER, learn=dict(num_quantiles=3, num_target_quantiles=7, grad_clip_norm=0.1)),
    "iqn nstep": _with("iqn", nstep=3, double=False, learn=dict(target_theta=0.1)),
    "fqf prioritised": _with(
        "fqf", **_PER, learn=dict(learning_rate_quantile=1e-3, ent_coef=0.01, target_update_freq=7)
    ),
    "fqf nstep": _with("fqf", nstep=3, double=False, learn=dict(target_theta=0.1, learning_rate_fraction=1e-3)),
    "qmix prioritised": _with("qmix", **_PER),
    "r2d2 clipped": _with("r2d2", double=False, learn=dict(loss="huber", grad_clip_norm=0.1, ignore_done=True)),
    "drqn prioritised": _with("drqn", **_PER, learn=dict(target_update_freq=7)),
    "ppo schedules": _with("ppo", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003)),
    "ppo autograd target_kl": _with("ppo autograd", learn=dict(target_kl=0.003)),
    "ppo recompute": _with("ppo value_norm", recompute_adv=True, learn=dict(adv_norm="batch", value_clip=0.2)),
    "ppo_recurrent schedules": _with(
        "ppo_recurrent", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003, value_norm=True)
    ),
    "ppo_recurrent recompute": _with("ppo_recurrent", recompute_adv=True, learn=dict(adv_norm="batch", value_clip=0.2)),
    "impala prioritised": _with("impala", **_PER, learn=dict(schedule=_LINES, rho_clip_ratio=2.0, clip_value=0.1)),
    "ppo_offpolicy value_norm": _with("ppo_offpolicy", learn=dict(value_norm=True, schedule=_LINES)),
    "a2c schedules": _with("a2c", learn=dict(schedule=_LINES, batch_size=16, adv_norm=True)),
    "pg schedules": _with("pg", learn=dict(schedule=_LINES, adv_norm=True)),
    "ppg schedules": _with(
        "ppg", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003, epoch_per_collect=2)
    ),
    "ppg value_norm": _with("ppg autograd", learn=dict(value_norm=True, adv_norm="batch")),
    "td3 prioritised": _with("td3", **_PER, learn=dict(actor_update_freq=3, target_theta=0.1)),
    "ddpg prioritised": _with("ddpg", **_PER, learn=dict(grad_clip_norm=0.1)),
    "pdqn prioritised": _with("pdqn", **_PER, nstep=3, learn=dict(update_circle=4, target_theta=0.1)),
    "mpdqn clipped": _with("mpdqn", learn=dict(grad_clip_norm=0.1, ignore_done=True)),
    "ppo hybrid schedules": _with(
        "ppo hybrid", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003, entropy_weight=0.1)
    ),
    "sac prioritised": _with("sac", **_PER),
    "sac fixed": _with("sac", learn=dict(auto_alpha=False)),
    "discrete_sac prioritised": _with("discrete_sac", **_PER, nstep=3, learn=dict(grad_clip_norm=0.1)),
    "discrete_sac fixed": _with("discrete_sac", learn=dict(auto_alpha=False)),
}
# The families, and each way in which an update goes on from more than its gradient: weights of rows, a target that
# moves at times, a schedule, an early stop, returns that are counted anew.
GRAD_PARAMS = by_family(
    GRAD_CASES,
    also=(
        *("dqn prioritised", "rainbow prioritised autograd", "ppo schedules", "ppo autograd target_kl"),
        *("ppo recompute", "ppo_recurrent recompute", "ppg value_norm", "td3 prioritised"),
    ),
)


def batches_of(case: Case, policy: Policy) -> Iterator[TransitionBatch]:
    """Yield batches without end, with importance weights where the case has priorities."""
    for seed in count():
        batch = rows_of(case, policy, seed=seed)
        if case.settings.get("priority_IS_weight"):
            weight = np.random.default_rng(seed).random(len(batch)).astype(np.float32)
            batch = batch.with_columns(weight=weight)
        yield batch


def rng_of(number: int) -> np.random.Generator:
    """Return what shuffles the batch with this number."""
    return np.random.default_rng(1000 + number)
