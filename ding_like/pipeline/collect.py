"""Components of a process that collects: envs, a policy, its collector, and the role over its channels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space

from ding_like.comm.channels import Order, RowSink, Segment, Version, WeightReader, Weights
from ding_like.comm.flat_state import unflatten_state
from ding_like.comm.local import NewestWeights
from ding_like.comm.weights.encode import Kind, check_alike, decode, kinds_of
from ding_like.comm.weights.extract import state_of
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.env_metrics import as_stats
from ding_like.data.modes import CollectMode
from ding_like.data.obs import map_obs
from ding_like.data.records import EvalResult
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.checks import steps_per_row, warmup_steps
from ding_like.pipeline.components import Opponents, build_collector, build_evaluator, build_policy, evaluated_env
from ding_like.pipeline.envs import EnvSetting, build_collect_env, fit_policy_config
from ding_like.pipeline.statistics import ENV_WRAPPERS, CollectorStatistics, Statistics, adopt_statistics
from ding_like.policy import Policy
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import Array, EnvManager, Setting
from ding_like.worker import InteractionSerialEvaluator, SampleSerialCollector
from ding_like.worker.collector.stop_rule import StopRule, whole_number


class CollectEnd:
    """Envs, policy and collector of a process that collects.

    `connect` joins them to channels, of which `collect` then serves one order after another; `evaluate_role` adds envs
    of evaluations. `fitted` is the policy section that `policy` was made from. Envs that are not launched are launched.
    """

    def __init__(
        self,
        cfg: FrozenConfig,
        envs: EnvManager,
        policy: Policy,
        *,
        fitted: Mapping[str, Any],
        seed: int,
        statistics: CollectorStatistics | None = None,
        name: str = "collector",
        rng: np.random.Generator | None = None,
        folder: TemporaryDirectory[str] | None = None,
    ) -> None:
        """Make the collector, whose log bears `name`; `rng` is what it draws from, by default what follows from `seed`.

        `statistics` are those of the envs' wrappers, which observe for them already. `folder` is removed in the end.
        """
        self._cfg = cfg
        self._folder = folder
        self._fitted = fitted
        self.envs = envs
        self.policy = policy
        self.statistics = CollectorStatistics(envs) if statistics is None else statistics
        self.opponents = Opponents(fitted, policy)
        self.collector = build_collector(cfg, envs, policy, seed=seed, name=name, rng=rng)
        self._weights: PolicyWeights | None = None
        self._role: CollectRole | None = None

    @classmethod
    def build(
        cls,
        cfg: FrozenConfig,
        *,
        seed: int,
        env_setting: EnvSetting | None = None,
        name: str = "collector",
        seen: Callable[[EnvManager], EnvManager] = lambda envs: envs,
    ) -> CollectEnd:
        """Build all of it from a compiled config; `seen` returns the envs as the policy sees them."""
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

    # --- collecting

    def loaded(self, reader: WeightReader, *, policy_id: str = "policy") -> PolicyWeights:
        """Return the policy with the version of its weights, which come from `reader`; the same one each time."""
        if self._weights is None:
            use = self.statistics.use
            self._weights = PolicyWeights(self.policy, reader, policy_id=policy_id, on_statistics=use)
        return self._weights

    def connect(
        self,
        weights: PolicyWeights,
        sink: RowSink,
        *,
        after_segment: Callable[[Segment], None] | None = None,
    ) -> CollectRole:
        """Return the role that collects with these weights into a sink; the same one each time."""
        if self._role is None:
            self._role = CollectRole(
                self.collector,
                weights,
                sink=sink,
                random_steps=warmup_steps(self._cfg.policy),
                action_space=self.envs.action_space,
                stats=self._stats,
                observed=self.statistics.take,
                after_segment=after_segment,
            )
        return self._role

    @property
    def role(self) -> CollectRole:
        """Return what `connect` has made."""
        assert self._role is not None, "connect comes first"
        return self._role

    def use_policy(self, policy: Policy, sink: RowSink) -> None:
        """Act with a policy, which the role's weights hold, and put rows into a sink; open episodes go on."""
        self.policy = policy
        self.opponents = Opponents(self._fitted, policy)
        self.role.use_policy()
        self.role.sink = sink

    def collect(self, order: Order, *, stop: StopRule | None = None) -> Order:
        """Collect what an order wants; return the next order.

        A collector of whole episodes plays `order.rows` of them, one in each lane at least. If `stop` is met before,
        there are fewer rows.
        """
        if self.collector.unit == "episodes":
            self.policy.collect_mode.set_attribute("n_episode", max(order.rows, self.envs.num_lanes))
        return self.role.collect(order, stop=stop)

    def rows_rule(self, least: int) -> StopRule:
        """Return the rule that is met once a collection that begins now has `least` rows."""
        collector = self.collector
        if isinstance(collector, SampleSerialCollector):
            first = collector.num_surplus
            return lambda: first + collector.num_ready() >= least
        last = self.collector.envstep + least * steps_per_row(self._cfg.policy)
        return lambda: self.collector.envstep >= last

    def _stats(self, setting: Mapping[str, Any]) -> dict[str, Any]:
        collector = self.collector
        means = {"return": _finite(collector.mean_return), "length": _finite(collector.mean_length)}
        return {**means, **as_stats(collector.mean_metrics), **setting}

    def take(self) -> Segment:
        """Return the segment that the role's storage holds."""
        segment: Segment = self.role.sink.take()  # type: ignore[attr-defined]  # of a collector that returns its rows
        return segment

    @property
    def envstep(self) -> int:
        """Number of env steps that the collector has taken."""
        return int(self.collector.envstep)

    @envstep.setter
    def envstep(self, value: int) -> None:
        self.collector.envstep = value

    @property
    def random_steps(self) -> int:
        """Number of env steps of the run at whose begin actions are random."""
        return self.role.random_steps

    @random_steps.setter
    def random_steps(self, value: int) -> None:
        self.role.random_steps = value

    @property
    def num_collected(self) -> int:
        """Number of rows that the role's storage holds."""
        return int(self.role.sink.num_rows)  # type: ignore[attr-defined]  # of a collector that returns its rows

    @property
    def setting(self) -> Mapping[str, Any]:
        """Setting that the policy acted with last."""
        return self.role.setting

    @property
    def mean_return(self) -> float:
        """Mean return of the last episodes; NaN before the first."""
        return float(self.collector.mean_return)

    # --- where the envs and the actor are

    @property
    def obs(self) -> Any:
        """Return the newest observations [E, O...], as a tensor or a dict of them."""
        return map_obs(torch.tensor, self.envs.obs)

    @property
    def recurrent_state(self) -> dict[str, torch.Tensor]:
        """Return the actor's recurrent state by name [E, S...]; empty before it has acted, and for one without."""
        state = adapt_collect_mode(self.role.mode).actor.state_dict()
        return {name: torch.tensor(column) for name, column in state.items()}

    @property
    def done(self) -> torch.Tensor:
        """Return bool[E]: the lanes that begin an episode next, as the one before has ended or none has begun."""
        return torch.tensor(self.collector.is_first)

    def evaluate_role(self, envs: EnvManager, weights: PolicyWeights, *, seed: int) -> EvaluateRole:
        """Return a role that plays fresh episodes in `envs` (games: against the config's opponent) with the weights."""
        seen = evaluated_env(self._cfg, envs, self.opponents, seed=seed)
        evaluator = build_evaluator(self._cfg, seen, self.policy, seed=seed)
        return EvaluateRole(evaluator, weights, before=lambda: adopt_statistics(seen, weights.statistics))

    def close(self) -> None:
        """Close the envs and the collector's log; may be called again."""
        self.collector.close()
        if self._folder is not None:
            self._folder.cleanup()


def segment_of(data: Any, info: Mapping[str, Any]) -> Segment:
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


_WAIT_S = 1.0  # for rows that may be collected, before it is asked again


class CollectRole:
    """Collect as many rows as are ordered, each segment with the newest weights that there are.

    Envs, open episodes and weights stay from order to order. `settings` returns what the policy is told for an order,
    by default what its command mode says of the order's env step, and `stats` what a segment reports. `observed`
    returns what the envs' wrappers saw since it was called last. `after_segment` is called once a segment is put. For
    the run's first `random_steps` env steps actions are random, drawn from `action_space`.
    """

    def __init__(
        self,
        collector: SampleSerialCollector,
        weights: PolicyWeights,
        *,
        sink: RowSink,
        random_steps: int = 0,
        action_space: Space[Any] | None = None,  # a space is generic in what it samples, which differs from env to env
        settings: Callable[[Order], Setting] | None = None,
        stats: Callable[[Setting], Mapping[str, Any]] | None = None,
        observed: Callable[[], Mapping[str, Array]] | None = None,
        after_segment: Callable[[Segment], None] | None = None,
    ) -> None:
        if random_steps > 0 and action_space is None:
            raise ConfigError(f"{random_steps} random steps need the action space that they are drawn from.")
        self._collector = collector
        self._weights = weights
        self.update_policy: Callable[[], object] = weights.take_newest  # called before each segment
        self.sink = sink
        self.random_steps = random_steps
        self._action_space = action_space
        self._settings = settings or self._command
        self._stats = stats
        self._observed = observed
        self._after_segment = after_segment
        self._acts_at_random = False
        self.setting: Setting = {}  # what was said last

    def run(
        self,
        *,
        collect: Callable[[Order], Order] | None = None,
        is_done: Callable[[], bool] = lambda: False,
        wait_s: float = _WAIT_S,
    ) -> int:
        """Collect until an order says that it is enough, or `is_done`; return the number of segments.

        `collect` stands in place of the role's own. While there are no rows to collect, `is_done` is asked every
        `wait_s`.
        """
        collect, num_segments = collect or self.collect, 0
        order = self.sink.order(timeout_s=wait_s)
        while not order.finish and not is_done():
            if order.rows > 0:
                order = collect(order)
                num_segments += 1
            else:
                order = self.sink.order(timeout_s=wait_s)
        return num_segments

    def collect(self, order: Order, *, stop: StopRule | None = None) -> Order:
        """Collect as many rows as an order wants, put them, and return the next order.

        If `stop` is met before there are as many, the segment has those that can be made by then.
        """
        self.update_policy()
        version = (order.newest or UNTRAINED) if self._weights.is_shared else self._weights.version
        self._act_at_random(order.env_step < self.random_steps)
        collector, self.setting = self._collector, self._settings(order)
        first_step = collector.envstep
        # A collector of one's own need not know of stop rules.
        by_rule: dict[str, StopRule] = {} if stop is None else {"stop": stop}
        batch = collector.collect_rows(order.rows, train_iter=version.update, policy_kwargs=self.setting, **by_rule)
        segment = Segment(
            batch,
            version,
            collector.envstep - first_step,
            {} if self._stats is None else self._stats(self.setting),
            {} if self._observed is None else self._observed(),
        )
        following = self.sink.put(segment)
        if self._after_segment is not None:
            self._after_segment(segment)
        return following

    @property
    def mode(self) -> CollectMode:
        """Return the collect mode of the policy, which acts unless actions are random."""
        return self._weights.policy.collect_mode

    def use_policy(self) -> None:
        """Act with the policy that the weights hold now; open episodes go on."""
        self._collector.reset_policy(self.mode)
        self._acts_at_random = False

    def _command(self, order: Order) -> Setting:
        setting: Setting = self._weights.policy.command_mode.get_setting_collect({"envstep": order.env_step})
        return setting

    def _act_at_random(self, at_random: bool) -> None:
        if at_random == self._acts_at_random:
            return
        mode = self.mode
        if at_random and self._action_space is not None:
            mode = random_collect_mode(mode, self._action_space)
        self._collector.reset_policy(mode)
        self._acts_at_random = at_random


# Of a policy as it was made: every learner's attempt publishes later ones.
UNTRAINED = Version(0, 0)


class PolicyWeights:
    """Policy with the version of the weights that it acts with; roles of one process may share both.

    Weights come from `reader`, or by `put` from any thread, which loads them while the policy is not `in_use`. Without
    a reader the policy is shared with the learner that trains it: nothing is loaded. `statistics` are those of the
    envs' wrappers that came with the weights; `on_statistics` is called with them.
    """

    def __init__(
        self,
        policy: Policy,
        reader: WeightReader | None = None,
        *,
        policy_id: str = "policy",
        on_statistics: Callable[[Statistics], None] | None = None,
    ) -> None:
        self.policy = policy
        self.policy_id = policy_id
        self.statistics: Statistics = {}
        self.version = UNTRAINED
        self._on_statistics = on_statistics
        self._reader = reader
        self._busy = threading.Lock()  # held while the policy is in use, or weights that were put are loaded
        self._kinds: dict[str, Kind] | None = None  # of the policy's tensors

    @property
    def is_shared(self) -> bool:
        """Whether the policy is the learner's own."""
        return self._reader is None

    def take_newest(self) -> None:
        """Load the newest weights if they are newer than those that are loaded."""
        if self._reader is not None:
            newest = self._reader.newest(self.policy_id, newer_than=self.version)
            if newest is not None:
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
        if self._on_statistics is not None:
            self._on_statistics(self.statistics)

    # --- weights that are put, where the reader is NewestWeights

    def put(self, given: Any) -> None:  # Any: see `weights_of`
        """Take weights, unless there are newer ones. Raises CommError for weights that do not fit the policy."""
        assert isinstance(self._reader, NewestWeights), "weights come from elsewhere"
        if self._kinds is None:
            self._kinds = kinds_of(state_of(self.policy.collect_mode))
        weights = weights_of(given, self._kinds)
        if self._reader.newest(weights.policy_id, newer_than=weights.version) is None:
            self._reader.put(weights)
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
        weights = decode(given)
    else:
        raise CommError(
            f"a worker was given a {type(given).__name__} as weights; expected a dict of version and weights."
        )
    own = {name: each for name, each in weights.state.items() if not name.startswith(f"{ENV_WRAPPERS}/")}
    check_alike(expected, kinds_of(own))
    return weights


_FINAL_EPISODES = 20
# The number of the final evaluation of a run: no stop rule has seen its episodes.
_FINAL_NUMBER = -1


class Evaluation(NamedTuple):
    """Result of an evaluation of a run."""

    stop: bool  # the mean return reached `stop_value`
    returns: Sequence[float]
    best_return: float  # mean of the best evaluation so far, this one included
    duration_s: float  # saving the best model included
    metrics: Mapping[str, float] = {}  # of the env, means over episodes


class EvaluateRole:
    """Player of the episodes of evaluations, each with the weights that it is asked for.

    `before` is called before each.
    """

    def __init__(
        self,
        evaluator: InteractionSerialEvaluator,
        weights: PolicyWeights,
        *,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._evaluator, self.weights, self._before = evaluator, weights, before or (lambda: None)

    def play(self, n_episode: int, *, number: int) -> EvalResult:
        """Return what the `n_episode` episodes of the evaluation `number` gave, with `weights.version`."""
        self._prepare()
        return self._evaluator.play(n_episode, number=number)

    def is_due(self, train_iter: int) -> bool:
        """Return whether the next evaluation of a run is due."""
        return self._evaluator.should_eval(train_iter)

    def evaluate(self, train_iter: int, env_step: int, *, save_checkpoint: Callable[[str], None]) -> Evaluation:
        """Evaluate what a learner has made until `train_iter`, log it, and save the model if it is the best."""
        started = time.perf_counter()
        self._prepare()
        stop, info = self._evaluator.eval(save_checkpoint, train_iter, env_step)
        return self._found(started, info["eval_episode_return"], info.get("metrics", {}), stop=stop)

    def final(self) -> EvalResult:
        """Return the final evaluation of a run: the last model plays episodes that no stop rule has seen."""
        return self.play(self._final_episodes, number=_FINAL_NUMBER)

    def conclude(self, train_iter: int, env_step: int, *, save_checkpoint: Callable[[str], None]) -> Evaluation:
        """Return the final evaluation; log it as those before it, and save the model if it is the best.

        It ends no run: `stop` is False.
        """
        started = time.perf_counter()
        self._prepare()
        result = self._evaluator.eval_last(
            self._final_episodes, number=_FINAL_NUMBER, train_iter=train_iter, envstep=env_step,
            save_ckpt_fn=save_checkpoint,
        )  # fmt: skip
        return self._found(started, result.returns, result.metrics)

    def _found(
        self, started: float, returns: Sequence[float], metrics: Mapping[str, float], *, stop: bool = False
    ) -> Evaluation:
        return Evaluation(stop, returns, self._evaluator.best_return, time.perf_counter() - started, metrics)

    @property
    def _final_episodes(self) -> int:
        env = self._evaluator.env
        return max(_FINAL_EPISODES, 0 if env is None else env.num_lanes)

    def _prepare(self) -> None:
        self.weights.take_asked()
        self._before()

    def close(self) -> None:
        """Close the envs; may be called again."""
        self._evaluator.close()
