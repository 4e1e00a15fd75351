"""Build a scheme for a run from its config and its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ding_like.comm.workers.failures import FailureLog
from ding_like.config import FrozenConfig
from ding_like.pipeline.build import Components, EnvSetting
from ding_like.pipeline.build.driver_end import DriverEnd
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.ray.runner import RayRunner
from ding_like.pipeline.ray.scheme import Scheme
from ding_like.pipeline.ray.settings import RaySettings
from ding_like.pipeline.runner import Runner

_COMMUNICATION = {"sync": "synchronous", "async": "asynchronous", None: "synchronous"}


def ray_runner(
    cfg: FrozenConfig,
    parts: Components,
    settings: RaySettings,
    *,
    seed: int,
    log: FailureLog | None = None,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    dynamic_seed: bool = True,
) -> Callable[[Callable[[], bool]], Runner]:
    """Return what makes the runner of a run with these parts (`build_driver`), whose workers run on Ray."""
    fitted: Any = parts.policy.cfg
    made = SchemeFactories.of(
        cfg, seed=seed, env_setting=env_setting, model=model, dynamic_seed=dynamic_seed, fitted=fitted
    )

    def make_runner(is_leaving: Callable[[], bool]) -> Runner:
        # Known once the parts stand where the run begins or goes on.
        factories = replace(made, begun_at=parts.collector.envstep)
        scheme = Scheme(
            factories.algo,
            factories.learning_actor,
            factories.storage,
            factories.train_envs,
            num_col_workers=settings.collect.workers,
            num_grad_workers=settings.grad.workers,
            col_workers_communication=_COMMUNICATION[settings.collect.comm],
            grad_workers_communication=_COMMUNICATION[settings.grad.comm],
            decentralized_update_execution=settings.update.decentralized,
            local_device=settings.update.device,
            settings=settings,
            end=DriverEnd(cfg, parts),
            log=log,
            is_leaving=is_leaving,
        )
        return RayRunner(scheme)

    return make_runner
