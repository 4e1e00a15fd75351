"""The cases of policies whose gradient is computed in one process and applied in another, and how both sides do it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.policy import Policy
from tests.contracts.policy_cases import CASES, Case, deep_merge, rows_of

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
    "qmix prioritised": _with("qmix", **_PER),
    "ppo schedules": _with("ppo", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003)),
    "ppo autograd target_kl": _with("ppo autograd", learn=dict(target_kl=0.003)),
    "ppo recompute": _with("ppo value_norm", recompute_adv=True, learn=dict(adv_norm="batch", value_clip=0.2)),
    "ppo_offpolicy value_norm": _with("ppo_offpolicy", learn=dict(value_norm=True, schedule=_LINES)),
    "a2c schedules": _with("a2c", learn=dict(schedule=_LINES, batch_size=16, adv_norm=True)),
    "td3 prioritised": _with("td3", **_PER, learn=dict(actor_update_freq=3, target_theta=0.1)),
    "ddpg prioritised": _with("ddpg", **_PER, learn=dict(grad_clip_norm=0.1)),
    "sac prioritised": _with("sac", **_PER),
    "sac fixed": _with("sac", learn=dict(auto_alpha=False)),
}


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
