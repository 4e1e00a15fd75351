"""Make what a process that collects is made of: envs, a policy, its collector, and the role over its channels.

Collectors of mode parallel and of schemes are this, with channels of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ding_like.comm.channels import Order, RowSink, Segment, Version, WeightReader
from ding_like.comm.workers.columns import unpack_rows
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.records import EvalResult
from ding_like.errors import CommError
from ding_like.pipeline.build.envs import EnvSetting, build_collect_env
from ding_like.pipeline.build.opponents import Opponents, evaluated_env
from ding_like.pipeline.build.parts import build_collector, build_evaluator
from ding_like.pipeline.build.policies import build_policy
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.evaluate import EvaluateRole
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.pipeline.sample_unit import steps_per_row, warmup_steps
from ding_like.pipeline.statistics import CollectorStatistics, adopt_statistics
from ding_like.policy import Policy
from ding_like.types import EnvManager
from ding_like.worker.collector.stop_rule import EnvSteps, StopRule

# What a collector returns beside its rows, by name; Any: numbers, texts, arrays and dicts of these.
Info = dict[str, Any]


class CollectEnd:
    """Hold the envs, the policy and the collector of a process that collects.

    `connect` joins them to channels; `evaluate_role` adds envs of evaluations. `fitted` is the policy section that
    `policy` was made from. Envs that are not launched are launched here.
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
    ) -> None:
        """Make the collector, whose log bears `name`; `rng` is what it draws from, by default what follows from `seed`.

        `statistics` are those of the envs' wrappers, which observe for them already.
        """
        self._cfg = cfg
        self.envs = envs
        self.policy = policy
        self.statistics = CollectorStatistics(envs) if statistics is None else statistics
        self.opponents = Opponents(fitted, policy)
        self.collector = build_collector(cfg, envs, policy, seed=seed, name=name, rng=rng)
        self._weights: LoadedWeights | None = None
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

    def loaded(self, reader: WeightReader, *, policy_id: str = "policy") -> LoadedWeights:
        """Return the policy with the version of its weights, which come from `reader`; the same one each time."""
        if self._weights is None:
            self._weights = LoadedWeights(self.policy, reader, policy_id=policy_id, on_statistics=self.statistics.use)
        return self._weights

    def connect(
        self,
        weights: LoadedWeights,
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

    def collect(self, order: Order, *, stop: StopRule | None = None) -> Order:
        """Collect what an order wants, once connected; return the next order.

        A collector of whole episodes plays `order.rows` of them, one in each lane at least. If `stop` is met before,
        there are fewer rows.
        """
        assert self._role is not None, "connect comes first"
        if self.collector.unit == "episodes":
            self.policy.collect_mode.set_attribute("n_episode", max(order.rows, self.envs.num_lanes))
        return self._role.collect(order, stop=stop)

    def least_steps(self, order: Order, fraction: float) -> StopRule:
        """Return the rule that is met once `fraction` of the env steps for an order's rows are taken from now on."""
        # 1e-9: 0.07 * 100 is a little more than 7.
        least = math.ceil(fraction * order.rows * steps_per_row(self._cfg.policy) - 1e-9)
        return EnvSteps(max(least, 1), lambda: self.collector.envstep)

    def _stats(self, setting: Mapping[str, Any]) -> dict[str, Any]:
        collector = self.collector
        return {"return": _finite(collector.mean_return), "length": _finite(collector.mean_length), **setting}

    # --- evaluating

    def evaluate_role(self, envs: EnvManager, weights: LoadedWeights, *, seed: int) -> EvaluateRole:
        """Return a role that plays fresh episodes in `envs` (games: against the config's opponent) with the weights."""
        return make_evaluate_role(self._cfg, envs, weights, self.opponents, seed=seed)

    def close(self) -> None:
        """Close the envs and the collector's log; may be called again."""
        self.collector.close()


def make_evaluate_role(
    cfg: FrozenConfig, envs: EnvManager, weights: LoadedWeights, opponents: Opponents, *, seed: int
) -> EvaluateRole:
    """Return a role that plays episodes in launched `envs`, which normalise by the statistics of the weights."""
    seen = evaluated_env(cfg, envs, opponents, seed=seed)
    evaluator = build_evaluator(cfg, seen, weights.policy, seed=seed)
    return EvaluateRole(evaluator, weights, before=lambda: adopt_statistics(seen, weights.statistics))


# --- what a collector of a scheme returns


def info_of(segment: Segment, *, seconds: float, dropped_steps: int, evaluated: EvalResult | None = None) -> Info:
    """Return what a collector says of a segment beside its rows; `segment_of` reads it."""
    setting = dict(segment.stats)
    # NaN before the first episode has ended.
    means = {name: setting.pop(key, None) for name, key in (("TrainReward", "return"), ("TrainLength", "length"))}
    episodes = {name: math.nan if mean is None else mean for name, mean in means.items()}
    return {
        "Episodes": episodes if evaluated is None else {**episodes, "TestReward": evaluated.mean},
        "Time": {"DataCollection": seconds},
        "ActorVersion": {"DataCollection": segment.version.update},
        "NumberSamples": len(segment.batch),
        "EnvSteps": segment.env_steps,
        "DroppedSteps": dropped_steps,
        "Version": tuple(segment.version),
        "Observed": dict(segment.observed),
        "Setting": setting,
    }


def segment_of(data: object, info: Info) -> Segment:
    """Return the segment that a collector's rows and info are of.

    `data` are columns by name, rows that do not stack, or a frame of `pack_rows`. Arrays that came read-only are
    copied: policies make tensors of them. Raises CommError for a frame that was changed, or is not of as many rows as
    the info says.
    """
    observed: Mapping[str, Any] = info["Observed"]
    if isinstance(data, (bytes, bytearray, memoryview)):
        batch, observed = unpack_rows(bytes(data))
    elif isinstance(data, Mapping):
        batch = TransitionBatch({name: _own(column) for name, column in data.items()})
    else:
        batch = data  # type: ignore[assignment]  # a list of whatever the policy makes
    if len(batch) != info["NumberSamples"]:
        raise CommError(f"a collector sent {len(batch):,} rows, and says that they are {info['NumberSamples']:,}.")
    episodes = info["Episodes"]
    stats = {"return": _finite(episodes["TrainReward"]), "length": _finite(episodes["TrainLength"]), **info["Setting"]}
    return Segment(batch, Version(*info["Version"]), info["EnvSteps"], stats, observed)


def _own(column: Any) -> Any:  # Any: an array, or a tensor on a device
    return column.copy() if isinstance(column, np.ndarray) and not column.flags.writeable else column


def _finite(value: float) -> float | None:
    return value if value == value else None
