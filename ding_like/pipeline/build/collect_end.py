"""Make what a process that collects is made of: envs, a policy, its collector, and the role over its channels.

Collectors of mode parallel and of schemes are this, with channels of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.comm.channels import Order, Rows, RowSink, Segment, Version, WeightReader
from ding_like.comm.workers.columns import pack_rows, unpack_rows
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.env_metrics import as_stats
from ding_like.data.obs import map_obs
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import CommError
from ding_like.pipeline.build.envs import EnvSetting, build_collect_env
from ding_like.pipeline.build.parts import Opponents, build_collector, build_evaluator, build_policy, evaluated_env
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.evaluate import EvaluateRole
from ding_like.pipeline.roles.policy_weights import PolicyWeights
from ding_like.pipeline.sample_unit import steps_per_row, warmup_steps
from ding_like.pipeline.statistics import CollectorStatistics, adopt_statistics
from ding_like.policy import Policy
from ding_like.types import Array, EnvManager
from ding_like.worker import SampleSerialCollector
from ding_like.worker.collector.base import LoopCollector
from ding_like.worker.collector.stop_rule import EnvSteps, StopRule
from ding_like.worker.collector.stop_rule import Rows as RowsRule

# What a collector returns beside its rows, by name; Any: numbers, texts, arrays and dicts of these.
Info = dict[str, Any]


class CollectionResult(NamedTuple):
    """Result of a collection into a storage."""

    col_time: float  # seconds
    train_perf: float  # mean return of recent episodes, NaN before the first has ended


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

    def stop_rule(self, order: Order, fraction: float, signals: Sequence[StopRule]) -> StopRule | None:
        """Return the rule to stop at one of `signals` once `fraction` of an order's rows are there.

        None: there is no signal, or all rows are to be collected.
        """
        if fraction >= 1 or not signals:
            return None
        collector, least = self.collector, max(math.ceil(fraction * order.rows - 1e-9), 1)  # 0.07 * 100 is over 7
        if isinstance(collector, SampleSerialCollector):
            first = collector.num_surplus
            taken: StopRule = RowsRule(least, lambda: first + collector.num_ready(), have=first + collector.num_ready())
        else:
            taken = EnvSteps(least * steps_per_row(self._cfg.policy), lambda: self.collector.envstep)
        return taken & reduce(lambda one, other: one | other, signals)

    def _stats(self, setting: Mapping[str, Any]) -> dict[str, Any]:
        collector = self.collector
        means = {"return": _finite(collector.mean_return), "length": _finite(collector.mean_length)}
        return {**means, **as_stats(collector.mean_metrics), **setting}

    def info(self, segment: Segment, *, seconds: float, test_return: float | None = None) -> Info:
        """Return what is said of a segment beside its rows; `segment_of` reads it.

        It took `seconds`; `test_return` is the mean return of an evaluation before. The means of "Episodes" are over
        the collector's last 100 episodes, NaN before the first has ended; "DroppedSteps" are those of its whole life.
        """
        setting = dict(segment.stats)
        means = {name: setting.pop(key, None) for name, key in (("TrainReward", "return"), ("TrainLength", "length"))}
        episodes = {name: math.nan if mean is None else mean for name, mean in means.items()}
        return {
            "Episodes": episodes if test_return is None else {**episodes, "TestReward": test_return},
            "Time": {"DataCollection": seconds},
            "ActorVersion": {"DataCollection": segment.version.update},
            "NumberSamples": len(segment.batch),
            "EnvSteps": segment.env_steps,
            "DroppedSteps": self.collector.dropped_steps if isinstance(self.collector, LoopCollector) else 0,
            "Version": tuple(segment.version),
            "Observed": dict(segment.observed),
            "Setting": setting,
        }

    def take(
        self, *, seconds: float, test_return: float | None, compress: bool, device: torch.device | None
    ) -> tuple[Any, Info]:
        """Return (rows, info) of the segment that the role's storage holds, as `rows_to_send` does."""
        segment: Segment = self.role.sink.take()  # type: ignore[attr-defined]  # of a collector that returns its rows
        info = self.info(segment, seconds=seconds, test_return=test_return)
        return rows_to_send(segment, info, compress=compress, device=device)

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


# --- what a collector of a scheme returns


def rows_to_send(
    segment: Segment, info: Info, *, compress: bool, device: torch.device | None = None
) -> tuple[Any, Info]:
    """Return (rows, info) as a collector sends them: columns by name, or one frame; a list of what does not stack.

    A frame holds what the envs' wrappers observed, too. Columns are arrays, or with `device` tensors there.
    """
    if not isinstance(segment.batch, TransitionBatch):
        return segment.batch, info
    if compress:
        return pack_rows(segment.batch, segment.observed), {**info, "Observed": {}}
    return dict((segment.batch if device is None else segment.batch.to(device)).columns), info


def segment_of(data: Any, info: Info) -> Segment:
    """Return the segment that a collector's rows and info are of.

    `data` are columns by name, rows that do not stack, or a frame of `pack_rows`. Arrays that came read-only are
    copied: policies make tensors of them. Raises CommError for a frame that was changed, or is not of as many rows as
    the info says.
    """
    batch: Rows
    observed: Mapping[str, Array] = info["Observed"]
    if isinstance(data, (bytes, bytearray, memoryview)):
        unpacked, observed = unpack_rows(bytes(data))
        if not isinstance(unpacked, TransitionBatch):
            raise CommError("a collector sent windows of rows; expected rows.")
        batch = unpacked
    elif isinstance(data, Mapping):
        batch = TransitionBatch({name: _own(column) for name, column in data.items()})
    else:
        batch = data
    if len(batch) != info["NumberSamples"]:
        raise CommError(f"a collector sent {len(batch):,} rows, and says that they are {info['NumberSamples']:,}.")
    return described_segment(batch, info, observed)


def described_segment(batch: Any, info: Mapping[str, Any], observed: Mapping[str, Array]) -> Segment:
    """Return the segment of rows that `CollectEnd.info` describes."""
    episodes = info["Episodes"]
    stats = {"return": _finite(episodes["TrainReward"]), "length": _finite(episodes["TrainLength"]), **info["Setting"]}
    return Segment(batch, Version(*info["Version"]), info["EnvSteps"], stats, observed)


def collector_name(index_worker: int | str, index_parent: int) -> str:
    """Return the name of a worker that collects: "collector3", or "collector1_3" for another parent than 0."""
    return f"collector{f'{index_parent}_' if index_parent else ''}{index_worker}"


def _own(column: Any) -> Any:  # Any: an array, or a tensor on a device
    return column.copy() if isinstance(column, np.ndarray) and not column.flags.writeable else column


def _finite(value: float) -> float | None:
    return value if value == value else None
