"""Take the place of policies, envs and judges: weights are a counter, and every row says whose it is.

A row's `obs` is (number of the process that made it, number of its segment, row in the segment, version of the weights
that acted), and its `reward` the attempt of the learner that published those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces

from ding_like.data.batch import Schema, TransitionBatch
from ding_like.data.rows import LearnMode
from ding_like.types import Array
from ding_like.worker import BaseLearner

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class CountingPolicy:
    """Count updates; that is all its weights are."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.updates = 0
        self.batch: Any = None

    # --- weights

    def state_dict(self) -> dict[str, Any]:
        return {"model": {"updates": torch.tensor(float(self.updates))}}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        self.updates = int(updates_of(state))

    # --- modes

    @property
    def collect_mode(self) -> Any:
        return SimpleNamespace(
            state_dict=self.state_dict,
            load_state_dict=self.load_state_dict,
            get_attribute=self.get_attribute,
            actor=None,
            reset=lambda *_: None,
        )

    @property
    def eval_mode(self) -> Any:
        return self.collect_mode

    @property
    def command_mode(self) -> Any:
        return SimpleNamespace(get_setting_collect=lambda state: {})

    @property
    def learn_mode(self) -> LearnMode:
        return LearnMode(
            forward=None,
            reset=lambda *_: None,
            info=lambda: "a policy that counts",
            monitor_vars=lambda: ["loss"],
            get_attribute=self.get_attribute,
            set_attribute=lambda *_: None,
            state_dict=self.state_dict,
            load_state_dict=self.load_state_dict,
            minibatches=self.minibatches,
            grad=self.grad,
            apply=self.apply,
        )

    def get_attribute(self, name: str) -> Any:
        return self._simulation.batch_size if name == "batch_size" else None

    def grad_vectors(self) -> list[Any]:
        return []

    # --- learning

    def minibatches(self, batch: Any, rng: np.random.Generator, **_: Any) -> Iterator[Any]:
        self._simulation.audit.batch_is_taken(self, batch)
        for _number in range(2 if self._simulation.plan.kind == "on_policy" else 1):
            yield batch

    def grad(self, batch: Any) -> tuple[dict[str, Any], Any]:
        simulation = self._simulation
        simulation.world.sleep(simulation.rng.uniform(0.5, 1.5) * simulation.plan.train_s)
        simulation.audit.updated(self)
        priority = (
            np.full(len(batch), 0.5 + self.updates % 7, np.float32) if simulation.plan.kind == "priority" else None
        )
        return {"loss": 0.5}, priority

    def apply(self) -> None:
        self.updates += 1


def updates_of(state: Mapping[str, Any]) -> float:
    """Return the counter among weights, however deep it lies."""
    for name, value in state.items():
        if isinstance(value, Mapping):
            return updates_of(value)
        if name.rpartition("/")[2].rpartition(".")[2] == "updates":
            return float(value)
    raise KeyError("updates")


class Envs:
    """Envs that a collector or an evaluation would launch."""

    num_lanes = num_envs = 1
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None: ...

    def launch(self) -> None: ...

    def wrapper_states(self) -> list[Any]:
        return []

    def close(self) -> None: ...


def rows(number: int, process: int, segment: int, acted: tuple[int, int]) -> dict[str, Array]:
    """Return columns that say whose they are."""
    obs = np.zeros((number, 4), np.float32)
    obs[:, 0], obs[:, 1], obs[:, 2], obs[:, 3] = process, segment, np.arange(number), acted[1]
    return {
        "obs": obs,
        "action": np.zeros(number, np.int64),
        "reward": np.full(number, acted[0], np.float32),
        "next_obs": obs,
        "terminated": np.zeros(number, bool),
    }


class ScriptedCollector:
    """Collector whose rows name their process, at the update ratio of a plan."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        assert simulation.world.current is not None
        self._process = simulation.world.current.process
        self._num_segments = 0
        self.envstep = 0
        self.mean_return, self.mean_length = 1.0, 10.0
        self.mean_metrics: dict[str, float] = {}

    def reset_policy(self, mode: Any) -> None: ...

    def collect_rows(self, n_sample: int, train_iter: int = 0, policy_kwargs: Any = None, **_: Any) -> TransitionBatch:
        simulation = self._simulation
        acted = simulation.audit.loaded.get(self._process.name, (0, 0))
        if acted[1] != train_iter:
            simulation.world.fail("weights", f"a collector acts with {acted} and says version {train_iter}")
        simulation.world.sleep(n_sample * simulation.plan.step_s * simulation.rng.uniform(0.5, 2.0))
        number, self._num_segments = self._num_segments, self._num_segments + 1
        self.envstep += n_sample
        return TransitionBatch(rows(n_sample, self._process.number, number, acted))

    def close(self) -> None: ...


class ScriptedEvaluator:
    """Evaluator that reports the returns that the simulation has chosen."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.env = Envs()

    def play(self, n_episode: int, *, number: int = 0) -> Any:
        simulation = self._simulation
        simulation.world.sleep(simulation.rng.uniform(0.05, 1.0))
        mean = simulation.value_of_policy()
        played = {"returns": [mean] * n_episode, "lengths": [10] * n_episode, "metrics": {}}
        return SimpleNamespace(**played, mean=mean, duration_s=0.5, std=0.0)

    def reset_policy(self, mode: Any) -> None: ...

    def close(self) -> None: ...


class ScriptedJudge:
    """Judge the last model as the simulation wants it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.env = self.manager = Envs()

    def judge(self, policy: Any, opponents: Any, **_: Any) -> None: ...

    def play(self) -> dict[str, Any]:
        self._simulation.world.sleep(self._simulation.rng.uniform(0.05, 1.0))
        value = self._simulation.judged_value()
        return {"eval_value": value, "eval_value_raw": [value], "judge_s": 0.5}

    def close(self) -> None: ...


class SilentLogger:
    """Text log that keeps nothing."""

    handlers: tuple[Any, ...] = ()

    def info(self, *_: Any) -> None: ...

    debug = warning = error = info


class SilentMetrics:
    """Metrics sink that keeps nothing."""

    def write(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...


def replacements(simulation: Simulation) -> dict[Any, Any]:
    """Return what stands for which class or function of the package."""
    from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
    from ding_like.pipeline.components import rows_schema
    from ding_like.pipeline.envs import fit_policy_config
    from ding_like.pipeline.parallel.comm_learner import FinalEvaluation
    from ding_like.pipeline.self_play import Opponents
    from ding_like.policy import create_policy
    from ding_like.policy.di_engine_view import random_collect_mode
    from ding_like.utils.log import build_logger, close_logger
    from ding_like.utils.seeding import set_pkg_seed
    from ding_like.worker import create_learner, create_serial_collector, create_serial_evaluator

    def make_learner(cfg: Mapping[str, Any], **kwargs: Any) -> BaseLearner:
        hook = {name: "" if name.startswith("load") else False for name in cfg["hook"]}
        return BaseLearner({**cfg, "hook": hook, "log_policy": False}, **{**kwargs, "tb_logger": SilentMetrics()})

    return {
        EnvFactory: lambda *_, **__: None,
        create_env_manager: lambda *_, **__: Envs(),
        get_vec_env_setting: lambda *_, **__: (None, [None], [None]),
        FinalEvaluation: lambda *_, **__: ScriptedJudge(simulation),
        Opponents: lambda *_, **__: SimpleNamespace(face=lambda *_: None),
        fit_policy_config: lambda cfg, *_, **__: cfg,
        create_policy: lambda *_, **__: CountingPolicy(simulation),
        random_collect_mode: lambda mode, *_, **__: mode,
        build_logger: lambda *_, **__: (SilentLogger(), None),
        close_logger: lambda *_: None,
        rows_schema: lambda *_, **__: Schema.of(rows(1, 0, 0, (0, 0))),
        set_pkg_seed: lambda *_, **__: None,
        create_learner: make_learner,
        create_serial_collector: lambda *_, **__: ScriptedCollector(simulation),
        create_serial_evaluator: lambda *_, **__: ScriptedEvaluator(simulation),
    }
