"""Rollout worker: envs, a policy with its weights, and a collector, whose rows go to a sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch

from ding_like.comm.channels import CollectRequest, RowSink, Segment, Version, WeightReader, Weights
from ding_like.comm.tensors import Kind, check_alike, decode_weights, kinds_of, state_of, unflatten_state
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch, map_obs
from ding_like.data.records import EvalResult, as_stats
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import CommError
from ding_like.pipeline.checks import steps_per_row, warmup_steps
from ding_like.pipeline.components import Components, build_collector, build_evaluator
from ding_like.pipeline.envs import EnvSetting, build_collect_env, build_policy, fit_policy_config
from ding_like.pipeline.self_play import Opponents, evaluated_env
from ding_like.pipeline.statistics import ENV_WRAPPERS, CollectorStatistics, Statistics, adopt_statistics
from ding_like.policy import Policy
from ding_like.policy.di_engine_view import random_collect_mode
from ding_like.types import Array, Config, EnvManager, Info, Setting
from ding_like.worker import EpisodeSerialCollector, IBuffer, InteractionSerialEvaluator, SampleSerialCollector
from ding_like.worker.collector.base import Samples, array_manager
from ding_like.worker.collector.loop import StopRule, whole_number

_Worker = TypeVar("_Worker", bound="RolloutWorker")
_WAIT_S = 1.0  # for a request of rows, before `is_done` is asked again


class RolloutWorker:
    """Envs, policy and collector of one process: each request makes a segment of rows, which goes to a sink.

    `connect` joins the worker to weights and to a sink. Envs, open episodes and weights stay from request to request;
    for the run's first `random_steps` env steps actions are random. `fitted` is the policy section that `policy` was
    made from. A subclass may override `update_policy`, `collect_setting` and `after_segment`.
    """

    weights: PolicyWeights
    sink: RowSink

    def __init__(
        self,
        cfg: FrozenConfig,
        envs: EnvManager,
        policy: Policy,
        *,
        fitted: Config,
        seed: int,
        statistics: CollectorStatistics | None = None,
        name: str = "collector",
        rng: np.random.Generator | None = None,
        folder: TemporaryDirectory[str] | None = None,
    ) -> None:
        """Build the collector, whose log is called `name`; envs that are not launched are launched.

        `rng` draws its random numbers, by default a generator that follows from `seed`. `statistics` are those of the
        envs' wrappers, where these observe already. `folder` is removed by `close`.
        """
        self._cfg, self._fitted, self._folder = cfg, fitted, folder
        self.envs, self.policy = envs, policy
        self.statistics = CollectorStatistics(envs) if statistics is None else statistics
        self.opponents = Opponents(fitted, policy)
        self.collector = build_collector(cfg, envs, policy, seed=seed, name=name, rng=rng)
        self.random_steps = warmup_steps(cfg.policy)
        self.setting: Setting = {}  # that the policy acted with last
        self._acts_at_random = False
        self._evaluator: InteractionSerialEvaluator | None = None

    @classmethod
    def build(
        cls: type[_Worker],
        cfg: FrozenConfig,
        *,
        seed: int,
        env_setting: EnvSetting | None = None,
        name: str = "collector",
        seen: Callable[[EnvManager], EnvManager] = lambda envs: envs,
    ) -> _Worker:
        """Build envs, policy and collector of a compiled config; `seen` returns the envs as the policy sees them."""
        found: list[CollectorStatistics] = []
        launched = build_collect_env(
            cfg,
            seed=seed,
            env_setting=env_setting,
            before_launch=lambda envs: found.append(CollectorStatistics(envs)),
        )
        try:
            envs = seen(launched)
            fitted = fit_policy_config(cfg.policy, envs)
            policy = build_policy(fitted, seed=seed, modes=["collect", "eval", "command"])
            return cls(cfg, envs, policy, fitted=fitted, seed=seed, statistics=found[0], name=name)
        except BaseException:
            launched.close()
            raise

    def connect(self, weights: PolicyWeights, sink: RowSink) -> None:
        """Collect with these weights, and the statistics of env wrappers that come with them, into a sink."""
        self.weights, self.sink = weights, sink
        weights.use_statistics(self.statistics.use)

    def use_policy(self, policy: Policy, sink: RowSink) -> None:
        """Act with a policy, which the weights hold already, and put rows into a sink; open episodes go on."""
        self.policy, self.sink = policy, sink
        self.opponents = Opponents(self._fitted, policy)
        self.collector.reset_policy(policy.collect_mode)
        self._acts_at_random = False

    # --- collecting

    def update_policy(self) -> None:
        """Load the newest weights; called before each segment."""
        self.weights.take_newest()

    def acting_version(self, request: CollectRequest) -> Version:
        """Return the version of the weights that act."""
        return self.weights.version

    def collect_setting(self, request: CollectRequest) -> Setting:
        """Return the setting of the policy for a request: what its command mode returns for the run's env step."""
        setting: Setting = self.policy.command_mode.get_setting_collect({"envstep": request.env_step})
        return setting

    def after_segment(self, segment: Segment) -> None:
        """Do nothing; called with each segment that was put."""

    def run(self, *, is_done: Callable[[], bool] = lambda: False, wait_s: float = _WAIT_S) -> int:
        """Collect until a request ends that, or `is_done`; return the number of segments.

        While no rows are requested, `is_done` is asked every `wait_s`.
        """
        num_segments, request = 0, self.sink.order(timeout_s=wait_s)
        while not request.finish and not is_done():
            if request.rows > 0:
                request = self.collect_segment(request)
                num_segments += 1
            else:
                request = self.sink.order(timeout_s=wait_s)
        return num_segments

    def collect(self, request: CollectRequest, *, stop: StopRule | None = None) -> CollectRequest:
        """Collect as `collect_segment` does; of whole episodes `request.rows`, one in each lane at least."""
        if self.collector.unit == "episodes":
            self.policy.collect_mode.set_attribute("n_episode", max(request.rows, self.envs.num_lanes))
        return self.collect_segment(request, stop=stop)

    def collect_segment(self, request: CollectRequest, *, stop: StopRule | None = None) -> CollectRequest:
        """Collect the rows of a request, put them, and return the next request.

        If `stop` is met before, the segment has the rows that can be made by then.
        """
        collector = self.collector
        self.update_policy()
        version = self.acting_version(request)
        self._act_at_random(request.env_step < self.random_steps)
        self.setting, first_step = self.collect_setting(request), collector.envstep
        # A collector of one's own need not have an argument for stop rules.
        by_rule: dict[str, StopRule] = {} if stop is None else {"stop": stop}
        batch = collector.collect_rows(request.rows, train_iter=version.update, policy_kwargs=self.setting, **by_rule)
        segment = Segment(batch, version, collector.envstep - first_step, self._stats(), self._observed())
        following = self.sink.put(segment)
        self.after_segment(segment)
        return following

    def _act_at_random(self, at_random: bool) -> None:
        if at_random != self._acts_at_random:
            mode = self.policy.collect_mode
            self.collector.reset_policy(random_collect_mode(mode, self.envs.action_space) if at_random else mode)
            self._acts_at_random = at_random

    def _stats(self) -> dict[str, Any]:
        collector = self.collector
        means = {"return": _finite(collector.mean_return), "length": _finite(collector.mean_length)}
        return {**means, **as_stats(collector.mean_metrics), **self.setting}

    def _observed(self) -> Mapping[str, Array]:
        """Return what the envs' wrappers observed since the last call."""
        return self.statistics.take()

    def rows_rule(self, least: int) -> StopRule:
        """Return the rule that is met once a collection that begins now has `least` rows."""
        collector = self.collector
        if isinstance(collector, SampleSerialCollector):
            first = collector.num_surplus
            return lambda: first + collector.num_ready() >= least
        last = collector.envstep + least * steps_per_row(self._cfg.policy)
        return lambda: collector.envstep >= last

    # --- of a worker whose sink is a storage that its caller empties

    def take(self) -> Segment:
        """Return the segment that the storage holds."""
        segment: Segment = self.sink.take()  # type: ignore[attr-defined]  # a storage has more than a sink
        return segment

    @property
    def num_collected(self) -> int:
        """Number of rows that the storage holds."""
        return int(self.sink.num_rows)  # type: ignore[attr-defined]  # a storage has more than a sink

    @property
    def envstep(self) -> int:
        """Number of env steps that the collector has taken."""
        return int(self.collector.envstep)

    @envstep.setter
    def envstep(self, value: int) -> None:
        self.collector.envstep = value

    @property
    def mean_return(self) -> float:
        """Mean return of the last episodes; NaN before the first."""
        return float(self.collector.mean_return)

    @property
    def obs(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """Newest observations [E, O...], as a tensor or a dict of them."""
        return map_obs(torch.tensor, self.envs.obs)

    @property
    def recurrent_state(self) -> dict[str, torch.Tensor]:
        """Recurrent state of the actor by name [E, S...]; empty before it has acted, and for one without."""
        state = adapt_collect_mode(self.policy.collect_mode).actor.state_dict()
        return {name: torch.tensor(column) for name, column in state.items()}

    @property
    def done(self) -> torch.Tensor:
        """Lanes that begin an episode next, bool[E]: the one before has ended, or none has begun."""
        return torch.tensor(self.collector.is_first)

    # --- evaluating

    def use_eval_envs(self, envs: EnvManager, *, seed: int) -> None:
        """Evaluate in `envs`; games are played against the config's opponent."""
        seen = evaluated_env(self._cfg, envs, self.opponents, seed=seed)
        self._evaluator = build_evaluator(self._cfg, seen, self.policy, seed=seed)

    def evaluate(self, n_episode: int, *, number: int, weights: PolicyWeights) -> EvalResult:
        """Play the fresh episodes of evaluation `number` with the weights that its task asks for."""
        evaluator = self._evaluator
        assert evaluator is not None and evaluator.env is not None, "use_eval_envs comes first"
        weights.take_asked()
        adopt_statistics(evaluator.env, weights.statistics)
        return evaluator.play(n_episode, number=number)

    def close(self) -> None:
        """Close the envs and the logs; may be called again."""
        self.collector.close()
        if self._evaluator is not None:
            self._evaluator.close()
        if self._folder is not None:
            self._folder.cleanup()


def collect_at_random(cfg: FrozenConfig, parts: Components) -> None:
    """Fill a run's buffer with rows of random actions, by its own collector."""
    random_collect(cfg.policy, parts.policy, parts.own_collector, parts.own_env, parts.commander, parts.replay_buffer)


def random_collect(
    policy_cfg: FrozenConfig,
    policy: Policy,
    collector: SampleSerialCollector,
    collector_env: EnvManager,
    commander: object,  # unused: random actions need no settings; a place of DI-engine's signature
    replay_buffer: IBuffer,
    postprocess_data_fn: Callable[[Samples], Samples] | None = None,
) -> None:
    """Fill the buffer with `policy_cfg.random_collect_size` samples made by random actions."""
    mode, num_lanes = adapt_collect_mode(policy.collect_mode), array_manager(collector_env).num_lanes
    collector.reset_policy(random_collect_mode(mode, collector_env.action_space))
    for samples in _random_samples(collector, policy_cfg.random_collect_size, num_lanes=num_lanes):
        rows = samples if postprocess_data_fn is None else postprocess_data_fn(samples)
        replay_buffer.push(rows, cur_collector_envstep=collector.envstep)
    collector.reset_policy(mode)


def _random_samples(collector: SampleSerialCollector, num_samples: int, *, num_lanes: int) -> Iterator[Samples]:
    """Yield at least `num_samples` rows: exactly as many, or those of whole episodes where these are collected."""
    if not isinstance(collector, EpisodeSerialCollector):
        yield collector.collect(n_sample=num_samples, random_collect=True, record_random_collect=False)
        return
    while num_samples > 0:
        samples = collector.collect(n_episode=num_lanes)
        num_samples -= len(samples)
        yield samples


def segment_of(data: Any, info: Info) -> Segment:
    """Return the segment of the rows and the info that `CWorker.collect_data` returned.

    `data` are columns by name, or rows that do not stack. Read-only arrays are copied: policies make tensors of them.
    """
    batch = data
    if isinstance(data, Mapping):
        batch = TransitionBatch({name: _own(column) for name, column in data.items()})
    return replace(info["Segment"], batch=batch)


def collector_name(index_worker: int | str, index_parent: int) -> str:
    """Return the name of a worker that collects: "collector3", or "collector1_3" for another parent than 0."""
    return f"collector{f'{index_parent}_' if index_parent else ''}{index_worker}"


def _own(column: Any) -> Any:  # Any: an array, or a tensor on a device
    return column.copy() if isinstance(column, np.ndarray) and not column.flags.writeable else column


def _finite(value: float) -> float | None:
    return value if value == value else None


# Of a policy as it was made: every learner's attempt publishes later ones.
UNTRAINED = Version(0, 0)


class PolicyWeights:
    """Policy with the version of the weights that it acts with, and the statistics of env wrappers beside them.

    Weights come from `reader`, or by `put` from any thread, which loads them while the policy is not `in_use`.
    """

    def __init__(self, policy: Policy, reader: WeightReader | None = None, *, policy_id: str = "policy") -> None:
        self.policy, self.policy_id, self._reader = policy, policy_id, reader
        self.statistics: Statistics = {}
        self.version = UNTRAINED
        self._on_statistics: Callable[[Statistics], None] = lambda statistics: None
        self._put: Weights | None = None  # the newest
        self._busy = threading.Lock()  # held while the policy is in use, or weights that were put are loaded
        self._kinds: dict[str, Kind] | None = None  # of the policy's tensors

    def take_newest(self) -> None:
        """Load the newest weights if they are newer than those that are loaded."""
        newest = self._put
        if self._reader is not None:
            newest = self._reader.newest(self.policy_id, newer_than=self.version)
        if newest is not None and newest.version > self.version:
            self.take(newest)

    def take_asked(self) -> None:
        """Load the weights that the reader gives, older ones as well: an evaluation plays those asked for."""
        asked = None if self._reader is None else self._reader.newest(self.policy_id)
        if asked is not None:
            self.take(asked)

    def take(self, weights: Weights) -> None:
        """Load weights, whichever they are."""
        state = unflatten_state(weights.state)
        self.statistics = state.pop(ENV_WRAPPERS, {})
        self.policy.collect_mode.load_state_dict(state)
        self.version = weights.version
        self._on_statistics(self.statistics)

    def read(self, given: Any) -> Weights:  # Any: see `weights_of`
        """Return what a worker is given as weights. Raises CommError for those that do not fit the policy."""
        if self._kinds is None:
            self._kinds = kinds_of(state_of(self.policy.collect_mode))
        return weights_of(given, self._kinds)

    def put(self, given: Any) -> None:  # Any: see `weights_of`
        """Take weights, unless there are newer ones. Raises CommError for weights that do not fit the policy."""
        weights = self.read(given)
        if self._put is None or weights.version >= self._put.version:
            self._put = weights
        if self._busy.acquire(blocking=False):  # else they are loaded before the policy's next use
            try:
                self.take_newest()
            finally:
                self._busy.release()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Use the policy with the newest weights: those that are put meanwhile are loaded when it is used next."""
        with self._busy:
            self.take_newest()
            yield

    def use_policy(self, policy: Policy) -> None:
        """Use another policy, with the newest weights that came for the one before. Raises CommError if none fit."""
        with self._busy:
            self.policy, self.version, self._kinds = policy, UNTRAINED, None
            self.take_newest()

    def use_statistics(self, use: Callable[[Statistics], None]) -> None:
        """Call `use` with the statistics that came with the weights, now and with all that follow."""
        self._on_statistics = use
        use(self.statistics)


def weights_of(given: Any, expected: Mapping[str, Kind]) -> Weights:  # Any: of three kinds
    """Return weights that a worker is given: what `encode` made, Weights, or {"version": int, "weights": state dict}.

    A state dict is the whole state of a policy's collect mode, nested or by flat names. Raises CommError that names the
    first tensor which is not `expected` (shapes and dtypes by flat name), and for anything else.
    """
    if isinstance(given, Mapping):
        if set(given) != {"version", "weights"} or not isinstance(given["weights"], Mapping):
            raise CommError(f"weights are a dict of {sorted(given)}; expected 'version' and 'weights', a state dict.")
        state = given["weights"]
        flat = dict(state) if expected.keys() <= state.keys() else state_of(state)
        # Attempt 1: newer than a policy as it was made, which is version 0 of attempt 0.
        weights = Weights("policy", Version(1, whole_number("version", given["version"], least=0)), flat)
    elif isinstance(given, Weights):
        weights = given
    elif isinstance(given, np.ndarray):
        weights = decode_weights(given)
    else:
        raise CommError(
            f"a worker was given a {type(given).__name__} as weights; expected a dict of version and weights."
        )
    own = {name: each for name, each in weights.state.items() if not name.startswith(f"{ENV_WRAPPERS}/")}
    check_alike(expected, kinds_of(own))
    return weights
