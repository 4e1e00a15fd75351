"""Factories of a scheme's workers, made from a compiled config."""

from __future__ import annotations

import copy
import math
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ding_like.comm.channels import CollectRequest, Segment, Version
from ding_like.comm.ray.packing import pack_state, unpack_state
from ding_like.comm.weights.encode import Encoded, encode
from ding_like.config import FrozenConfig, deep_merge
from ding_like.data.records import EvalResult
from ding_like.data.rows import adapt_collect_mode, adapt_eval_mode
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline.checks import warmup_steps
from ding_like.pipeline.collect import UNTRAINED, PolicyWeights, RolloutWorker, collector_name
from ding_like.pipeline.components import Components, build_buffer
from ding_like.pipeline.envs import EnvSetting, build_eval_env, build_policy, fit_policy_config, seeded_collect_env
from ding_like.pipeline.learner_side import LearnerSide, build_driver
from ding_like.pipeline.learners.synced import pack_learn_state, restored
from ding_like.pipeline.remote_collectors import RemoteCollectors
from ding_like.pipeline.self_play import Opponents, evaluated_env
from ding_like.pipeline.statistics import adopt_statistics
from ding_like.policy import Policy
from ding_like.policy.base import device_named
from ding_like.policy.sharing import mean_gradient, weaken
from ding_like.types import Array, Config, EnvManager, Info, Json, Setting, State
from ding_like.utils.seeding import MAX_SEED, global_rng_state, make_rng, set_global_rng_state, set_pkg_seed
from ding_like.worker import BaseLearner, BaseSerialCommander, create_learner
from ding_like.worker.collector.stop_rule import StopRule
from ding_like.worker.evaluator.interaction import play_episodes

# Of the learner of a gradient worker, whose updates the run's own learner logs, checks and saves.
_NO_HOOKS = dict.fromkeys((*BaseLearner.config["hook"], "log_reduce_after_iter"), False) | {"load_ckpt_before_run": ""}


class SegmentStorage:
    """Storage of a collector's newest segment until it is taken.

    `max_size` is the most rows that are collected at a time; None: as many as are ordered.
    """

    def __init__(self, max_size: int | None = None) -> None:
        self.max_size = max_size
        self._segment: Segment | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows that are still to be taken."""
        return 0 if self._segment is None else len(self._segment.batch)

    def put(self, segment: Segment) -> CollectRequest:
        """Keep a segment, in place of one that was not taken."""
        self._segment = segment
        return CollectRequest(False, 0, 0, None)

    def order(self, *, timeout_s: float) -> CollectRequest:
        """Return that nothing is wanted: the caller of the collector gives the orders."""
        return CollectRequest(False, 0, 0, None)

    def take(self) -> Segment:
        """Return the segment, once. Raises ConfigError where there is none."""
        segment, self._segment = self._segment, None
        if segment is None:
            raise ConfigError("the storage holds no rows: collect_train_data comes first.")
        return segment


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
    """Factories of actors, algorithms, storages and envs of a compiled config; `of` makes them.

    Worker 1 of parent 0 has the seeds and the generators of a serial run's collector, and so has worker 0, which
    collects where there is no other. All others are apart from it and from one another. Weights are initialised as a
    serial run's are.
    """

    cfg: FrozenConfig
    fitted: Config  # the policy section as `fit_policy_config` returns it
    seed: int
    env_setting: EnvSetting
    model: torch.nn.Module | None
    dynamic_seed: bool
    made_in: str
    begun_at: int = 0  # env steps: a resumed run draws other numbers than it began with

    @classmethod
    def of(
        cls, cfg: FrozenConfig, *, seed: int, env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None, dynamic_seed: bool = True, fitted: Config | None = None,
    ) -> SchemeFactories:  # fmt: skip
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
        """Return a policy that acts and returns its settings. Raises ConfigError for a device that is absent."""
        return self._policy(device, ["collect", "eval", "command"])

    def learning_actor(self, device: str | torch.device = "cpu") -> Policy:
        """Return a policy with all its modes, for gradient workers."""
        return self._policy(device, None)

    def algo(self, device: str | torch.device, actor: Policy) -> Algorithm:
        """Return the algorithm of the config for this policy."""
        return Algorithm(self, actor)

    def storage(self, device: str | torch.device, actor: Policy, algo: Algorithm) -> SegmentStorage:
        """Return the storage of the rows of a collection until they are taken."""
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

    # --- learner's sides

    def run_side(self, *, collects: bool, max_policy_lag: int | None) -> LearnerSide:
        """Return the learner's side of a run; with `collects` it has envs to collect in."""
        parts = build_driver(
            self.cfg, seed=self.seed, env_setting=self.env_setting, model=self.model, dynamic_seed=self.dynamic_seed,
            collects=collects,
        )  # fmt: skip
        return LearnerSide(self.cfg, parts, max_policy_lag=max_policy_lag, close=parts.close)

    def worker_side(self, policy: Policy, index_worker: int, max_policy_lag: int | None) -> LearnerSide:
        """Return the learner's side of gradient worker `index_worker`: rows of its own, and a learner without hooks."""
        with ExitStack() as opened:
            folder = opened.enter_context(TemporaryDirectory(prefix="ding-like-"))
            cfg, buffer = FrozenConfig(deep_merge(self.cfg, {"exp_name": folder})), None
            if not cfg.policy.on_policy:
                buffer = build_buffer(cfg, seed=self.seed, rank=index_worker, env_setting=self.env_setting)
            learner = create_learner(
                {**cfg.policy.learn.learner, "hook": _NO_HOOKS}, policy=policy.learn_mode, exp_name=folder,
                dist_info=(index_worker, index_worker + 1),
                rng=make_rng(self.seed, "learner", str(index_worker), *self.resumed),
            )  # fmt: skip
            report, command = RemoteCollectors(), policy.command_mode
            commander = BaseSerialCommander(cfg.policy.other.commander, learner, report, None, buffer, command)
            parts = Components(None, None, policy, learner, report, None, buffer, commander, None)
            opened.callback(parts.close)
            return LearnerSide(cfg, parts, max_policy_lag=max_policy_lag, close=opened.pop_all().close)

    # --- what they share

    @property
    def is_at_home(self) -> bool:
        """Whether this is the process that the factories were made in."""
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
        """Names of generators of a resumed run; empty for one that begins."""
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
    """Training of a config, by the names of PyTorchRL's algorithms; attributes may be set while it runs.

    `update_every`: rows (of whole episodes: episodes) to collect between two stages of updates. `start_steps`: env
    steps of the run at whose begin actions are random. `test_every`: updates between two evaluations of
    `num_test_episodes` episodes each. `policy` is the one whose section and optimizers are read and changed. `side` is
    the learner's side of the run in its own process, whose collector, learner and rows the algorithm uses.
    """

    def __init__(self, factories: SchemeFactories, policy: Policy, side: LearnerSide | None = None) -> None:
        section = factories.cfg.policy
        self.factories, self.policy = factories, policy
        self.keeps_parts = side is not None  # what the run learns with is not replaced
        self._side = side
        self._on_policy = bool(section.on_policy)
        self.update_every: int = int(section.collect.get("n_sample") or section.collect.get("n_episode") or 1)
        self.start_steps: int = warmup_steps(section) if side is None else 0  # the run collects its random rows first
        self.num_test_episodes: int = int(section.eval.evaluator.n_episode)
        self.test_every: int = int(section.eval.evaluator.eval_freq)

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

    def hold_weights(self, actor: Policy) -> PolicyWeights:
        """Return what keeps the weights that the actor is sent."""
        return PolicyWeights(actor)

    def rollout_worker(
        self, envs: EnvManager, index_worker: int, index_parent: int, weights: PolicyWeights | None = None,
        storage: SegmentStorage | None = None,
    ) -> RolloutWorker:  # fmt: skip
        """Return what a worker collects with, in `envs`, which are closed with it; joined to weights and a storage."""
        if self.keeps_parts and storage is not None:
            return _RunCollector(self.factories, self.side, storage)
        own, seed = self.factories, self.factories.lane_seed(index_worker, index_parent)
        is_first = index_worker <= 1 and index_parent == 0
        place = () if is_first else (str(index_parent), str(index_worker))
        if not own.is_at_home and (not is_first or own.begun_at):
            set_pkg_seed(seed)  # what envs draw of the global generators differs from worker to worker
        adapt_collect_mode(self.policy.collect_mode).actor.reset()  # the envs are at first steps
        cfg, folder = own.cfg, None
        if not own.is_at_home and not Path(cfg.exp_name).is_dir():  # on another machine the run has no folder
            folder = TemporaryDirectory(prefix="ding-like-")
            cfg = FrozenConfig(deep_merge(cfg, {"exp_name": folder.name}))
        worker = RolloutWorker(
            cfg, envs, self.policy, fitted=own.fitted, seed=own.seed, name=collector_name(index_worker, index_parent),
            rng=make_rng(own.seed, "collector", *place, *own.resumed), folder=folder,
        )  # fmt: skip
        if weights is not None and storage is not None:
            worker.connect(weights, storage)
        return worker

    def evaluate(self, envs: EnvManager, weights: PolicyWeights, *, number: int) -> EvalResult:
        """Play the fresh episodes of evaluation `number` in launched `envs`, with the weights that are loaded.

        Games are played against the config's opponent. Each env plays its share, so that short episodes are not
        preferred.
        """
        own = self.factories
        seen = evaluated_env(own.cfg, envs, Opponents(own.fitted, weights.policy), seed=own.seed)
        adopt_statistics(seen, weights.statistics)
        rng = make_rng(own.seed, "evaluator", str(number))
        return play_episodes(seen, adapt_eval_mode(weights.policy.eval_mode), self.num_test_episodes, rng=rng)

    # --- what a gradient worker computes with

    @property
    def side(self) -> LearnerSide:
        """Learner's side of the run, or of this gradient worker once `learning_storage` was called."""
        assert self._side is not None, "a worker that collects does not learn"
        return self._side

    def learning_storage(self, index_worker: int, max_policy_lag: int | None) -> LearnerSide:
        """Return the rows of the run, or, in a gradient worker's process, rows of its own, which begin empty."""
        if self._side is None:
            self._side = self.factories.worker_side(self.policy, index_worker, max_policy_lag)
        return self._side

    @property
    def num_updates(self) -> int:
        """Number of updates of the policy that computes here."""
        return self.side.parts.learner.train_iter

    @num_updates.setter
    def num_updates(self, value: int) -> None:
        learner = self.side.parts.learner
        learner.last_iter.update(max(learner.train_iter, value))

    def compute_gradients(self, minibatch: Any) -> tuple[State | None, Info]:  # Any: of whatever the policy learns from
        """Return (gradient, what the policy reports) of a minibatch; the run's own policy keeps its gradient."""
        info = self.side.parts.learner.compute_gradients(minibatch)
        return None if self.keeps_parts else self.policy.gradient(), info

    def apply_gradients(self, gradients: State | None = None, info: Info | None = None) -> None:
        """Take the optimizer's step with a gradient of `compute_gradients`; None: with the one computed here."""
        if gradients is not None:
            self.policy.load_gradient(gradients)
        self.side.parts.learner.apply_gradients(info)

    def count_update(self, info: Info) -> None:
        """Count an update that other processes have applied, and run the learner's hooks."""
        self.side.parts.learner.count_update(info)

    def mean_gradients(self, gradients: Sequence[State]) -> State:
        """Return the mean of what several workers computed."""
        return mean_gradient(gradients)

    def weaken_gradients(self, gradients: State, factor: float) -> State:
        """Return gradients that count a share `factor`."""
        return weaken(self.policy, gradients, factor)

    def gradient_weights(self) -> State:
        """Return what gradient workers compute with: parameters, targets, running statistics."""
        return self.policy.grad_state()

    def load_gradient_weights(self, state: State) -> None:
        """Take over what `gradient_weights` of another process returned."""
        self.policy.load_grad_state(state)

    def acting_weights(self, version: int, statistics: Mapping[str, Any]) -> Encoded:
        """Return what collectors act with, and what their envs normalise by: `statistics`, or those known here."""
        return encode(self.side.acting(statistics or None))

    def learned_state(self) -> tuple[Json, Array]:
        """Return all that was learned, the optimizer's state included."""
        described, flat = pack_learn_state(self.policy.learn_mode.state_dict())
        return described, pack_state(flat)

    def load_learned_state(self, state: tuple[Json, Array]) -> None:
        """Take over what `learned_state` returned."""
        described, flat = state
        self.policy.learn_mode.load_state_dict(restored(described, unpack_state(flat)))

    def fetch_before_saving(self, fetch: Callable[[], None]) -> None:
        """Have `fetch` bring what other processes have learned before the learner's state is read."""
        learner = self.side.parts.learner
        own, counts = learner.policy.state_dict, learner.state_dict()

        def state_dict() -> State:
            fetch()
            return own()

        learner.policy = learner.policy._replace(state_dict=state_dict)
        learner.load_state_dict(counts)

    def save_model(self, name: str) -> None:
        """Write a checkpoint of the learner under this name."""
        self.side.parts.learner.save_checkpoint(name)


class _RunCollector(RolloutWorker):
    """Run's own collector, which acts with the policy that learns, and whose segments go to a worker's storage."""

    def __init__(self, factories: SchemeFactories, side: LearnerSide, storage: SegmentStorage) -> None:
        parts = side.parts
        self._cfg, self._fitted = factories.cfg, factories.fitted
        self.envs, self.policy, self.collector = parts.own_env, parts.policy, parts.own_collector
        self.sink = storage
        self._commander = parts.commander
        self.random_steps, self.setting, self._acts_at_random = 0, {}, False

    def collect(self, request: CollectRequest, *, stop: StopRule | None = None) -> CollectRequest:
        return self.collect_segment(request, stop=stop)

    def update_policy(self) -> None:
        """Do nothing: the policy is the learner's."""

    def acting_version(self, request: CollectRequest) -> Version:
        return request.newest or UNTRAINED

    def collect_setting(self, request: CollectRequest) -> Setting:
        setting: Setting = self._commander.step()
        return setting

    def _observed(self) -> Mapping[str, Array]:
        return {}  # the envs normalise by what they observe themselves

    def close(self) -> None:
        """Do nothing: the collector is the run's."""


def no_envs(*_: object) -> None:
    """Make no envs, for a worker that collects, or evaluates, nothing."""


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ConfigError(f"{name} is {value!r}; expected a whole number, 1 or more.")
    return int(value)
