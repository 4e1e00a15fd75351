"""Components of a process that collects: envs, a policy, its collector, and the role over its channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from ding_like.comm.channels import Order, RowSink, Segment, WeightReader
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.env_metrics import as_stats
from ding_like.data.obs import map_obs
from ding_like.data.rows import adapt_collect_mode
from ding_like.pipeline.build.envs import EnvSetting, build_collect_env
from ding_like.pipeline.build.parts import Opponents, build_collector, build_evaluator, build_policy, evaluated_env
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.evaluate import EvaluateRole
from ding_like.pipeline.roles.policy_weights import PolicyWeights
from ding_like.pipeline.sample_unit import steps_per_row, warmup_steps
from ding_like.pipeline.statistics import CollectorStatistics, adopt_statistics
from ding_like.policy import Policy
from ding_like.types import EnvManager
from ding_like.worker import SampleSerialCollector
from ding_like.worker.collector.stop_rule import StopRule


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
