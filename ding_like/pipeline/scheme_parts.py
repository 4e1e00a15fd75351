"""Learner's side of a run whose rows workers collect, and factories of what the workers are made of."""

from __future__ import annotations

import copy
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ding_like.comm.channels import CollectRequest, Segment, Version, Weights
from ding_like.comm.tensors import Encoded, encode_weights, state_of
from ding_like.config import FrozenConfig, deep_merge
from ding_like.data.records import EvalResult
from ding_like.data.rows import adapt_collect_mode, adapt_eval_mode
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline.checks import has_league, plays_episodes, steps_per_row, warmup_steps
from ding_like.pipeline.collect import (
    UNTRAINED,
    PolicyWeights,
    RolloutWorker,
    collect_at_random,
    collector_name,
    segment_of,
)
from ding_like.pipeline.components import Components, build_buffer, build_serial
from ding_like.pipeline.envs import EnvSetting, build_eval_env, build_policy, fit_policy_config, seeded_collect_env
from ding_like.pipeline.rows import Collected, RemoteCollectors, RowQueue, RowReceiver
from ding_like.pipeline.self_play import Opponents, evaluated_env
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics, adopt_statistics
from ding_like.policy import Policy
from ding_like.policy.base import device_named
from ding_like.policy.sharing import mean_gradient, weaken
from ding_like.types import Array, Config, EnvManager, Info, State
from ding_like.utils.seeding import MAX_SEED, global_rng_state, make_rng, set_global_rng_state, set_pkg_seed
from ding_like.worker import BaseLearner, BaseSerialCommander, create_learner
from ding_like.worker.collector.loop import StopRule, whole_number
from ding_like.worker.evaluator import play_episodes

# Of the learner of a gradient worker, whose updates the run's own learner logs, checks and saves.
_NO_HOOKS = dict.fromkeys((*BaseLearner.config["hook"], "log_reduce_after_iter"), False) | {"load_ckpt_before_run": ""}
# Later than that of a policy as a collector has made it, so that even the first weights are taken.
ATTEMPT = 1
_RANDOM_STEPS = 1_024  # env steps of a call at a run's begin: one call of all of them may take longer than it may
_LEAST_STEPS = 64  # env steps of an asynchronous call: fewer cost more to send than to collect


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


def build_driver(
    cfg: FrozenConfig, *, seed: int, env_setting: EnvSetting | None = None, model: torch.nn.Module | None = None,
    dynamic_seed: bool = True, collects: bool = False, device: str | None = None,
) -> Components:  # fmt: skip
    """Return the components of a run with remote collectors: as a serial run's, but for envs to collect in.

    The policy, the learner and the buffer draw what those of a serial run draw. With `collects` the run's process
    collects by itself, and the components are a serial run's. `device` replaces that of `policy.cuda`. Raises
    ConfigError for a league, whose games are played where the player learns, and for a device that is absent.
    """
    if device is not None:
        named = device_named(device)
        cfg = FrozenConfig(deep_merge(cfg, {"policy": {"cuda": False if named.type == "cpu" else str(named)}}))
    if not collects and has_league(cfg):
        raise ConfigError("policy.other.league needs its games where its player learns: run it with `ding -m serial`.")
    return build_serial(
        cfg, seed=seed, env_setting=env_setting, model=model, dynamic_seed=dynamic_seed,
        with_buffer=not cfg.policy.on_policy, collects=collects,
    )  # fmt: skip


class LearnerSide:
    """Learner, rows and newest weights of a run, or of one of its gradient workers, whose storage it is.

    The rows of remote collectors come through `receiver`, which drops those that are more than `max_policy_lag` updates
    old. No update is made while the buffer holds fewer than
    `least_rows` rows. `close` closes what was opened for this side alone.
    """

    def __init__(
        self, cfg: FrozenConfig, parts: Components, *, max_policy_lag: int | None = None, least_rows: int = 0,
        close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        policy, buffer = cfg.policy, parts.buffer
        self.cfg, self.parts, self.close = cfg, parts, close
        self.rows = RowQueue(cfg, buffer, newest=self.newest, env_step=parts.collector.envstep, least_rows=least_rows)
        self._receiver: RowReceiver | None = None
        if isinstance(parts.collector, RemoteCollectors):
            self._receiver = RowReceiver(
                self.rows, parts.collector, newest=self.newest,
                max_policy_lag=math.inf if max_policy_lag is None else max_policy_lag,
                merged=parts.statistics if isinstance(parts.statistics, MergedStatistics) else None,
                follows_episodes=buffer is not None and buffer.needs_env,
            )  # fmt: skip
        self.run_env_step = 0  # of all gradient workers, as last reported here
        self._came: list[Collected] = []  # that `before_gradients` stores together
        self._first_iter = parts.learner.train_iter
        self.random_rows = int(policy.random_collect_size)  # rows of random actions that a run begins with
        self.is_on_policy = bool(policy.on_policy)  # rows are learned from only by the policy that collected them
        self.collects_episodes = plays_episodes(policy)
        # Fewest rows that a worker can collect at a time, or whole episodes: one in each lane.
        self.least_share = int(cfg.env.collector_env_num) if self.collects_episodes else 1
        # Rows of random actions that a worker is asked for at a time, so that it answers soon.
        self.random_share = self.least_share
        if not self.collects_episodes:
            self.random_share = max(1, _RANDOM_STEPS // steps_per_row(policy))

    @property
    def env_step(self) -> int:
        """Number of env steps of the run."""
        return self.rows.env_step

    @property
    def collects(self) -> bool:
        """Whether this process collects by itself: there are no remote collectors."""
        return self._receiver is None

    @property
    def receiver(self) -> RowReceiver:
        """Receiver of the rows of remote collectors."""
        assert self._receiver is not None, "the components were built for remote collectors"
        return self._receiver

    def newest(self) -> Version:
        """Return the version of the learner's weights."""
        return Version(ATTEMPT, self.parts.learner.train_iter)

    def segment_rows(self, asked: int, workers: int) -> int:
        """Return the rows of an asynchronous call (of whole episodes: episodes), by default what suits the policy."""
        collect = self.cfg.policy.collect
        if asked or not collect.get("n_sample"):
            return asked or max(self.least_share, -(-int(collect.get("n_episode") or 1) // workers))
        least = 1 if self.is_on_policy else -(-_LEAST_STEPS // steps_per_row(self.cfg.policy))
        return max(int(collect.n_sample), least)

    def collect_at_random(self) -> None:
        """Fill the buffer with random actions by the run's own collector."""
        collect_at_random(self.cfg, self.parts)
        self.rows.env_step = self.parts.collector.envstep

    # --- rows in

    def order_round(self) -> CollectRequest:
        """Return how many rows a round of collecting is to bring; 0: updates are behind."""
        request = self.rows.order()
        return request._replace(env_step=max(request.env_step, self.run_env_step))

    def insert_data_slice(self, data: object, info: Info) -> None:
        """Take the rows that one collector returned; `before_gradients` stores those of a round together."""
        self._came.append(Collected(info["Worker"], segment_of(data, info), info["CameS"], info["Asked"]))

    def before_gradients(self) -> None:
        """Store the rows that came."""
        came, self._came = self._came, []
        if self._receiver is not None:
            self._receiver.put(came, self.rows.order())
        else:
            for each in came:
                self.rows.put(each.segment)

    def insert_random(self) -> int:
        """Store the rows that came as those of random actions, which allow no updates; return how many there are."""
        came, self._came = self._came, []
        return self.receiver.put_random(came)

    def count_remote(self, infos: Iterable[Info]) -> Mapping[str, object]:
        """Count the segments of other gradient workers; return the statistics of the envs' wrappers."""
        for info in infos:
            self.receiver.count_elsewhere(info["Worker"], info["Segment"], age_s=info["data_age_s"])
        return self.receiver.statistics()

    # --- batches out

    def generate_batches(self, num_mini_batch: int, mini_batch_size: int, num_epochs: int) -> Iterator[object]:
        """Yield minibatches of the batches that are allowed by now, and None after the last one of each batch.

        Their sizes are those of the policy's config.
        """
        learner = self.parts.learner
        while (batch := self.rows.next()) is not None:
            yield from learner.minibatches(batch, self.rows.env_step)
            self.rows.update_priorities(learner.priority_info.get("priority"))
            yield None

    # --- weights and reports

    def acting(self, statistics: Mapping[str, object] | None = None) -> Weights:
        """Return all that an actor needs: the collect mode's state, and `statistics` that its envs normalise by.

        They are by default those that the run's workers have sent. The tensors are the learner's own.
        """
        state = self.parts.policy.collect_mode.state_dict()
        merged = self.statistics() if statistics is None else statistics
        return Weights("policy", self.newest(), state_of({**state, ENV_WRAPPERS: merged} if merged else state))

    def statistics(self) -> dict[str, dict[str, Array]]:
        """Return what the envs' wrappers have observed, by wrapper and field; empty where none learns anything."""
        statistics = self.parts.statistics
        return statistics.weights() if isinstance(statistics, MergedStatistics) else {}

    def describe(self) -> dict[str, str]:
        """Return the status of remote collectors: rows of a run's panel."""
        return {} if self.collects else self.receiver.report.describe()

    def rows_state(self) -> State:
        """Return how much was collected, and how many updates were made of it: those lost on their way are not."""
        if self.parts.buffer is None:
            return self.rows.state_dict()
        made = self.parts.learner.train_iter - self._first_iter  # of a buffer, each update is of a batch of its own
        return self.rows.state_dict(num_lost=max(0, self.rows.num_drawn - made))


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
        """Return the factories of a config; without `fitted` one env is opened to read its spaces.

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
        """Number of rows of a minibatch."""
        return int(self.policy.cfg.learn.batch_size or self.update_every)

    @mini_batch_size.setter
    def mini_batch_size(self, value: int) -> None:
        self.policy.cfg.learn.batch_size = whole_number("mini_batch_size", value)

    @property
    def num_mini_batch(self) -> int:
        """Number of minibatches of an epoch, on-policy, or of updates for each collection."""
        if self._on_policy:
            return max(1, round(self.update_every / self.mini_batch_size))
        return int(self.policy.cfg.learn.update_per_collect)

    @num_mini_batch.setter
    def num_mini_batch(self, value: int) -> None:
        number = whole_number("num_mini_batch", value)
        if self._on_policy:
            self.mini_batch_size = math.ceil(self.update_every / number)
        else:
            self.policy.cfg.learn.update_per_collect = number

    @property
    def num_epochs(self) -> int:
        """Number of times that each row of a collection is learned from, where the config has one."""
        return int(self.policy.cfg.learn.epoch_per_collect)

    @num_epochs.setter
    def num_epochs(self, value: int) -> None:
        if "epoch_per_collect" not in self.policy.cfg.learn:
            raise AttributeError("num_epochs")
        self.policy.cfg.learn.epoch_per_collect = whole_number("num_epochs", value)

    @property
    def updates_per_iter(self) -> int:
        """Number of updates for each collection."""
        return self.num_mini_batch * (self.num_epochs if self._on_policy and hasattr(self, "num_epochs") else 1)

    @property
    def gamma(self) -> float:
        """Discount of rewards."""
        gamma: float = self.policy.get_attribute("gamma")
        return gamma

    @gamma.setter
    def gamma(self, value: float) -> None:
        if not 0 <= value <= 1:
            raise ConfigError(f"gamma is {value}; expected a discount from 0 to 1.")
        self.policy.set_attribute("gamma", float(value))

    @property
    def lr(self) -> float:
        """Learning rate of the policy's first optimizer; a policy that does not learn here has none."""
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

    def compute_gradients(self, minibatch: object) -> tuple[State | None, Info]:
        """Return (gradient, what the policy reports) of a minibatch; the run's own policy keeps its gradient."""
        info = self.side.parts.learner.compute_gradients(minibatch)
        return None if self.keeps_parts else self.policy.gradient(), info

    def apply_gradients(self, gradients: State | None = None, info: Info | None = None) -> None:
        """Take the optimizer's step with a gradient of `compute_gradients`; None: with the one computed here."""
        if gradients is not None:
            self.policy.load_gradient(gradients)
        self.side.parts.learner.apply_gradients(info)

    mean_gradients = staticmethod(mean_gradient)

    def weaken_gradients(self, gradients: State, factor: float) -> State:
        """Return gradients that count a share `factor`."""
        return weaken(self.policy, gradients, factor)

    def acting_weights(self, version: int, statistics: Mapping[str, object]) -> Encoded:
        """Return what collectors act with, and what their envs normalise by: `statistics`, or those known here."""
        return encode_weights(self.side.acting(statistics or None))

    def save_model(self, name: str) -> None:
        """Write a checkpoint of the learner under this name."""
        self.side.parts.learner.save_checkpoint(name)


class _RunCollector(RolloutWorker):
    """Run's own collector, which acts with the policy that learns, and whose segments go to a worker's storage."""

    def __init__(self, factories: SchemeFactories, side: LearnerSide, storage: SegmentStorage) -> None:
        parts = side.parts
        self._cfg, self._fitted, self._commander = factories.cfg, factories.fitted, parts.commander
        self.envs, self.policy, self.collector = parts.own_env, parts.policy, parts.own_collector
        self.sink, self.random_steps, self.setting = storage, 0, {}

    def collect(self, request: CollectRequest, *, stop: StopRule | None = None) -> CollectRequest:
        """Collect and put the rows of a request; no other collector is there that could end it early."""
        version, before = request.newest or UNTRAINED, self.collector.envstep
        self.setting = self._commander.step()
        rows = self.collector.collect_rows(request.rows, train_iter=version.update, policy_kwargs=self.setting)
        return self.sink.put(Segment(rows, version, self.collector.envstep - before, self._stats()))

    def close(self) -> None:
        """Do nothing: the collector is the run's."""


def no_envs(*_: object) -> None:
    """Make no envs, for a worker that collects, or evaluates, nothing."""
