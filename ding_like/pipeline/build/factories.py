"""Make the factories of a scheme's workers from a compiled config.

They are methods of one plain object, which travels to where a worker runs and makes its parts there.
"""

from __future__ import annotations

import copy
import math
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ding_like.comm.channels import Order, Segment
from ding_like.config import FrozenConfig, deep_merge
from ding_like.data.records import EvalResult
from ding_like.data.rows import adapt_collect_mode, adapt_eval_mode
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline.build.collect_end import CollectEnd, collector_name
from ding_like.pipeline.build.envs import EnvSetting, build_eval_env, seeded_collect_env
from ding_like.pipeline.build.opponents import Opponents, evaluated_env
from ding_like.pipeline.build.policies import build_policy
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.pipeline.sample_unit import warmup_steps
from ding_like.pipeline.statistics import adopt_statistics
from ding_like.policy import Policy
from ding_like.policy.device import device_named
from ding_like.types import EnvManager
from ding_like.utils.seeding import (
    MAX_SEED,
    global_rng_state,
    make_rng,
    set_global_rng_state,
    set_pkg_seed,
)
from ding_like.worker.evaluator.interaction import play_episodes

# Of this process: what was made here is used in the process of a run itself, and not by a worker's own.
_PROCESS = uuid.uuid4().hex
_generators = threading.Lock()  # of the process, while a policy of its own seeds them

# What PyTorchRL calls the parts of a worker that can be replaced -> our attributes.
COMPONENTS = dict(
    Algorithm="algo", Actor="actor", Storage="storage", TrainEnvironment="envs_train", TestEnvironment="envs_test"
)

# Workers of one parent; their lanes have seeds of their own as long as there were not more.
_WORKERS_PER_PARENT = 10_000


@dataclass(frozen=True)
class SchemeFactories:
    """Make actors, algorithms, storages and envs as a compiled config says; `of` makes it.

    Worker 1 of parent 0 has the seeds and the generators of a serial run's collector, and so has worker 0, which
    collects where there is no other. All others are apart from it and from one another. Weights are initialised as a
    serial run's are.
    """

    cfg: FrozenConfig
    fitted: Mapping[str, Any]  # the policy section as `fit_policy_config` returns it
    seed: int
    env_setting: EnvSetting
    model: torch.nn.Module | None
    dynamic_seed: bool
    made_in: str
    begun_at: int = 0  # env steps: a run that goes on from a saved point draws other numbers than it began with

    @classmethod
    def of(
        cls,
        cfg: FrozenConfig,
        *,
        seed: int,
        env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None,
        dynamic_seed: bool = True,
        fitted: Mapping[str, Any] | None = None,
    ) -> SchemeFactories:
        """Return the factories of a config; one env is opened to look at its spaces unless `fitted` says them.

        `env_setting` and `model` stand in place of the config's envs and the policy's model, `dynamic_seed` is as in a
        serial run. Raises ConfigError for a policy that does not fit the envs.
        """
        setting = env_setting or get_vec_env_setting(cfg.env)
        # Workers may run in another folder.
        absolute = FrozenConfig(deep_merge(cfg, {"exp_name": str(Path(cfg.exp_name).absolute())}))
        if fitted is None:
            fitted = _fitted(cfg, setting)
        return cls(absolute, fitted, seed, setting, model, dynamic_seed, _PROCESS)

    # --- the factories

    def actor(self, device: str | torch.device = "cpu") -> Policy:
        """Return a policy that acts and says its settings. Raises ConfigError for a device that is absent."""
        return self._policy(device, ["collect", "eval", "command"])

    def learning_actor(self, device: str | torch.device = "cpu") -> Policy:
        """Return a policy with all its modes, for whoever computes gradients or applies them."""
        return self._policy(device, None)

    def algo(self, device: str | torch.device, actor: Policy) -> Algorithm:
        """Return what the config says of training with this policy."""
        return Algorithm(self, actor)

    def storage(self, device: str | torch.device, actor: Policy, algo: Algorithm) -> SegmentStorage:
        """Return what keeps the rows of a collection until they are handed over."""
        return SegmentStorage()

    def train_envs(self, device: str | torch.device, index_worker: int, index_parent: int) -> EnvManager:
        """Return a worker's envs of collecting, seeded and not launched."""
        seed = self.lane_seed(index_worker, index_parent)
        return seeded_collect_env(self.cfg, seed=seed, env_setting=self.env_setting, dynamic_seed=self.dynamic_seed)

    def test_envs(
        self, device: str | torch.device, index_worker: int, index_parent: int, role: str = "test"
    ) -> EnvManager:
        """Return launched envs of evaluations, which bring seeds of their own."""
        return build_eval_env(self.cfg, seed=self.seed, env_setting=self.env_setting)

    # --- what they share

    @property
    def is_at_home(self) -> bool:
        """Tell whether this is the process that the factories were made in."""
        return self.made_in == _PROCESS

    def lane_seed(self, index_worker: int, index_parent: int) -> int:
        """Return the seed of a worker's first lane; lane i has i more."""
        place = max(index_worker - 1, 0) + index_parent * _WORKERS_PER_PARENT
        num_lanes, first = len(self.env_setting[1]), self.seed
        if self.begun_at and self.dynamic_seed:
            first = int(make_rng(self.seed, "lanes", *self.resumed).integers(MAX_SEED))
        return (first + place * num_lanes) % (MAX_SEED + 1 - num_lanes)

    @property
    def resumed(self) -> tuple[str, ...]:
        """Return what generators of a run that goes on are named by besides; nothing for one that begins."""
        return ("resumed", str(self.begun_at)) if self.begun_at else ()

    def _policy(self, device: str | torch.device, modes: list[str] | None) -> Policy:
        named = device_named(device)
        cuda: bool | str = False if named.type == "cpu" else str(named)
        with self._own_generators():
            model = copy.deepcopy(self.model)  # each worker of a process has a policy of its own
            return build_policy({**self.fitted, "cuda": cuda}, seed=self.seed, model=model, modes=modes)

    @contextmanager
    def _own_generators(self) -> Iterator[None]:
        """Let a policy seed the global generators; in the process of the run they are then as they were."""
        if not self.is_at_home:
            yield
            return
        with _generators:
            before = global_rng_state()
            try:
                yield
            finally:
                set_global_rng_state(before)


def _fitted(cfg: FrozenConfig, setting: EnvSetting) -> dict[str, Any]:
    env_fn, *configs = setting
    one = next(iter([*configs[0], *configs[1]]))
    envs = create_env_manager(cfg.env.manager, [EnvFactory(one, env_fn)])
    try:
        return fit_policy_config(cfg.policy, envs)
    finally:
        envs.close()


class Algorithm:
    """Say by the names of PyTorchRL's algorithms what a config says of training; attributes may be set while it runs.

    `update_every`: rows (of whole episodes: episodes) to collect between two stages of updates. `start_steps`: env
    steps of the run at whose begin actions are random. `test_every`: updates between two evaluations of
    `num_test_episodes` episodes each. `policy` is the one whose section and optimizers are read and changed.
    """

    def __init__(self, factories: SchemeFactories, policy: Policy) -> None:
        section = factories.cfg.policy
        self._factories = factories
        self.policy = policy
        self._on_policy = bool(section.on_policy)
        self.update_every: int = int(section.collect.get("n_sample") or section.collect.get("n_episode") or 1)
        self.start_steps: int = warmup_steps(section)
        self.num_test_episodes: int = int(section.eval.evaluator.n_episode)
        self.test_every: int = int(section.eval.evaluator.eval_freq)

    @property
    def factories(self) -> SchemeFactories:
        """Return the factories that made it."""
        return self._factories

    # --- what the policy reads of its section, or of its optimizers, with every update

    @property
    def mini_batch_size(self) -> int:
        """Return the rows of a minibatch."""
        return int(self.policy.cfg.learn.batch_size or self.update_every)

    @mini_batch_size.setter
    def mini_batch_size(self, value: int) -> None:
        self.policy.cfg.learn.batch_size = _at_least_one("mini_batch_size", value)

    @property
    def num_mini_batch(self) -> int:
        """Return the minibatches of an epoch, on-policy, or the updates for each collection."""
        if self._on_policy:
            return max(1, round(self.update_every / self.mini_batch_size))
        return int(self.policy.cfg.learn.update_per_collect)

    @num_mini_batch.setter
    def num_mini_batch(self, value: int) -> None:
        number = _at_least_one("num_mini_batch", value)
        if self._on_policy:
            self.mini_batch_size = math.ceil(self.update_every / number)
        else:
            self.policy.cfg.learn.update_per_collect = number

    @property
    def num_epochs(self) -> int:
        """Return how often each row of a collection is learned from, where the config says that."""
        return int(self.policy.cfg.learn.epoch_per_collect)

    @num_epochs.setter
    def num_epochs(self, value: int) -> None:
        if "epoch_per_collect" not in self.policy.cfg.learn:
            raise AttributeError("num_epochs")
        self.policy.cfg.learn.epoch_per_collect = _at_least_one("num_epochs", value)

    @property
    def updates_per_iter(self) -> int:
        """Return the updates for each collection."""
        return self.num_mini_batch * (self.num_epochs if self._on_policy and hasattr(self, "num_epochs") else 1)

    def is_test_due(self, num_collections: int) -> bool:
        """Tell whether a multiple of `test_every` is among the updates that follow after so many collections."""
        updates = num_collections * self.updates_per_iter
        return -updates % self.test_every < self.updates_per_iter

    @property
    def gamma(self) -> float:
        """Return the discount of rewards."""
        gamma: float = self.policy.get_attribute("gamma")
        return gamma

    @gamma.setter
    def gamma(self, value: float) -> None:
        if not 0 <= value <= 1:
            raise ConfigError(f"gamma is {value}; expected a discount from 0 to 1.")
        self.policy.set_attribute("gamma", float(value))

    @property
    def lr(self) -> float:
        """Return the learning rate of the policy's first optimizer; a policy that does not learn here has none."""
        learns = "learn" in self.policy.get_attribute("enabled")
        for optimizer in self.policy.get_attribute("optimizers")() if learns else ():
            return float(optimizer.learning_rate)
        raise AttributeError("lr")

    @lr.setter
    def lr(self, value: float) -> None:
        if not value > 0:
            raise ConfigError(f"lr is {value}; expected a positive number.")
        self.policy.set_attribute("learning_rate", float(value))

    # --- what a worker collects and evaluates with

    def collect_end(self, envs: EnvManager, index_worker: int, index_parent: int) -> CollectEnd:
        """Return what a worker collects with, in `envs`, which are closed with it."""
        own, seed = self._factories, self._factories.lane_seed(index_worker, index_parent)
        is_first = index_worker <= 1 and index_parent == 0
        place = () if is_first else (str(index_parent), str(index_worker))
        if not own.is_at_home and (not is_first or own.begun_at):
            set_pkg_seed(seed)  # what envs draw of the global generators differs from worker to worker
        adapt_collect_mode(self.policy.collect_mode).actor.reset()  # the envs are at first steps
        cfg, folder = own.cfg, None
        if not own.is_at_home and not Path(cfg.exp_name).is_dir():  # on another machine the run has no folder
            folder = TemporaryDirectory(prefix="ding-like-")
            cfg = FrozenConfig(deep_merge(cfg, {"exp_name": folder.name}))
        return CollectEnd(
            cfg,
            envs,
            self.policy,
            fitted=own.fitted,
            seed=own.seed,
            name=collector_name(index_worker, index_parent),
            rng=make_rng(own.seed, "collector", *place, *own.resumed),
            folder=folder,
        )

    def evaluate(self, envs: EnvManager, weights: LoadedWeights, *, number: int) -> EvalResult:
        """Play the fresh episodes of evaluation `number` in launched `envs`, with the weights that are loaded.

        Games are played against the config's opponent. Each env plays its share, so that short episodes are not
        preferred.
        """
        own = self._factories
        seen = evaluated_env(own.cfg, envs, Opponents(own.fitted, weights.policy), seed=own.seed)
        adopt_statistics(seen, weights.statistics)
        rng = make_rng(own.seed, "evaluator", str(number))
        return play_episodes(seen, adapt_eval_mode(weights.policy.eval_mode), self.num_test_episodes, rng=rng)


class SegmentStorage:
    """Keep a collector's newest segment until it is taken: a RowSink for whoever returns rows to a caller.

    `max_size` is the most rows that are collected at a time; None: as many as are ordered.
    """

    def __init__(self, max_size: int | None = None) -> None:
        self.max_size = max_size
        self._segment: Segment | None = None

    @property
    def num_rows(self) -> int:
        """Return the rows that are still to be taken."""
        return 0 if self._segment is None else len(self._segment.batch)

    def put(self, segment: Segment) -> Order:
        """Keep a segment, in place of one that nobody has taken."""
        self._segment = segment
        return self.order(timeout_s=0.0)

    def order(self, *, timeout_s: float) -> Order:
        """Return that nothing is wanted: whoever takes the segments gives the orders."""
        return Order(False, 0, 0, None)

    def take(self) -> Segment:
        """Return the segment, once. Raises ConfigError where there is none."""
        segment, self._segment = self._segment, None
        if segment is None:
            raise ConfigError("the storage holds no rows: collect_train_data comes first.")
        return segment

    def reset(self) -> None:
        """Drop what nobody has taken."""
        self._segment = None


def no_envs(*_: object) -> None:
    """Make no envs, for a worker that collects, or evaluates, nothing."""


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ConfigError(f"{name} is {value!r}; expected a whole number, 1 or more.")
    return int(value)
