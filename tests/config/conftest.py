"""Small classes in every registry that a config reads, so that these tests need no torch and no real part."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from easydict import EasyDict

from ding_like.utils import registries


@registries.POLICY_REGISTRY.register("cfg_fake")
class FakePolicy:
    config = dict(
        type="cfg_fake",
        cuda=False,
        nstep=1,
        discount_factor=0.97,
        model=dict(),
        learn=dict(batch_size=64, learning_rate=1e-3, grad_clip_norm=None, target_update_freq=100, target_theta=None),
        collect=dict(n_sample=8, n_episode=None, unroll_len=1),
        other=dict(eps=dict(type="exp", decay=10000), replay_buffer=dict(replay_buffer_size=5000)),
    )
    config_free = ("model",)
    config_types = {"learn.grad_clip_norm": (float,), "learn.target_theta": (float,), "collect.n_episode": (int,)}
    config_alternatives = (("collect.n_sample", "collect.n_episode"),)

    @classmethod
    def default_config(cls) -> EasyDict:
        return EasyDict(deepcopy(cls.config), cfg_type="FakePolicyDict")

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        if cfg["learn"]["batch_size"] < cfg["nstep"]:
            yield "learn.batch_size", f"is below nstep={cfg['nstep']}"


@registries.ENV_REGISTRY.register("cfg_fake")
class FakeEnv:
    config = dict(env_id=None, kwargs=dict(), n_evaluator_episode=5)
    config_free = ("kwargs",)
    config_types = {"env_id": (str,)}


@registries.ENV_REGISTRY.register("cfg_open")
class FakeOpenEnv:
    """Declare nothing."""


@registries.ENV_MANAGER_REGISTRY.register("cfg_fake")
class FakeEnvManager:
    config = dict(step_timeout_s=60.0)


@registries.LEARNER_REGISTRY.register("cfg_fake")
class FakeLearner:
    config = dict(hook=dict(save_ckpt_after_iter=10000))
    config_free = ("hook",)


@registries.SERIAL_COLLECTOR_REGISTRY.register("cfg_fake")
class FakeCollector:
    """Collector without any config."""


@registries.SERIAL_EVALUATOR_REGISTRY.register("cfg_fake")
class FakeEvaluator:
    config = dict(eval_freq=1000)


@registries.BUFFER_REGISTRY.register("cfg_fake")
class FakeBuffer:
    config = dict(replay_buffer_size=10000, alpha=0.6)


@pytest.fixture
def create() -> dict[str, Any]:
    """Return a create_config of fakes."""
    names = ("env", "env_manager", "policy", "learner", "collector", "evaluator", "replay_buffer")
    return {name: {"type": "cfg_fake"} for name in names}


@pytest.fixture(autouse=True)
def _in_tmp_path(in_tmp: Path) -> None:
    """Run every test in an empty folder."""


@pytest.fixture(autouse=True)
def _restore_sys_path() -> Iterator[None]:
    """Take back what `read_config` puts on the path."""
    before = list(sys.path)
    yield
    sys.path[:] = before
