"""What tests of collect workers share: small configs, workers of them, and an env that tells of its steps."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from ding_like.config import FrozenConfig, compile_config, to_plain
from ding_like.pipeline.ray import CWorker
from ding_like.pipeline.scheme_parts import SchemeFactories
from tests.pipeline.test_serial import make_configs

# A config of each kind of rows: single steps, on-policy batches, sequences, whole episodes, games.
SHIPPED = {
    "ppo": "dizoo.classic_control.cartpole.config.cartpole_ppo_config",
    "sac": "dizoo.classic_control.pendulum.config.pendulum_sac_config",
    "r2d2": "dizoo.classic_control.cartpole.config.cartpole_r2d2_config",
    "impala": "dizoo.classic_control.cartpole.config.cartpole_impala_config",
    "rainbow": "dizoo.classic_control.cartpole.config.cartpole_rainbow_config",
    "pg": "dizoo.classic_control.cartpole.config.cartpole_pg_config",
    "tictactoe": "dizoo.petting_zoo.config.tictactoe_dqn_config",
    "connect_four": "dizoo.petting_zoo.config.connect_four_ppo_config",
}


def small_config(folder: Path, **policy: Any) -> FrozenConfig:
    """Return a compiled config of CartPole with DQN, whose policy section is changed."""
    main, create = make_configs(**policy)
    return compile_config({**main, "exp_name": str(folder / "exp")}, create, seed=0, save=False)


def shipped_config(name: str, folder: Path) -> FrozenConfig:
    """Return a shipped config, compiled."""
    module = importlib.import_module(SHIPPED[name])
    main = to_plain(module.main_config) | {"exp_name": str(folder / "exp")}
    main["policy"].get("other", {}).pop("league", None)
    # A league's opponents are another matter: without one a policy plays all sides.
    create = {key: value for key, value in module.create_config.items() if key != "league"}
    return compile_config(main, create, seed=0, save=False)


def make_worker(
    factories: SchemeFactories, *, index: int = 1, parent: int = 0, tests: bool = False, **kwargs: Any
) -> CWorker:
    """Return a worker that collects, and evaluates where asked to."""
    envs = {"test_envs_factory": factories.test_envs} if tests else {}
    return CWorker(
        index,
        parent,
        factories.algo,
        factories.actor,
        factories.storage,
        **{"train_envs_factory": factories.train_envs, **envs, **kwargs},
    )


class TellingEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Env that counts its steps and calls `told` with each number; an episode has three steps."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    told: ClassVar[Callable[[int], None] | None] = None
    num_steps: ClassVar[int] = 0

    def __init__(self, cfg: Any = None) -> None:
        self._time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        TellingEnv.num_steps += 1
        if TellingEnv.told is not None:
            TellingEnv.told(TellingEnv.num_steps)
        self._time += 1
        return np.full(1, self._time, np.float32), 1.0, self._time == 3, False, {}


def telling_config(folder: Path, *, num_envs: int = 1, n_sample: int = 20, nstep: int = 1) -> FrozenConfig:
    """Return a compiled config of DQN on TellingEnv."""
    main, create = make_configs(nstep=nstep, random_collect_size=0, collect=dict(n_sample=n_sample))
    main["env"] = dict(collector_env_num=num_envs, evaluator_env_num=2, n_evaluator_episode=4, stop_value=1e9)
    create["env"] = dict(type="tests.pipeline.ray.collecting:TellingEnv")
    return compile_config({**main, "exp_name": str(folder / "exp")}, create, seed=0, save=False)
