"""Interface and base classes of serial collectors."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.records import CollectStats, EpisodeRecord, mean_metrics
from ding_like.data.rows import CollectMode, adapt_collect_mode
from ding_like.errors import ConfigError
from ding_like.types import Array, Config, EnvManager, PolicyLike, Setting, State
from ding_like.utils.bounds import FROM_1, Bounds, Configurable
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.metrics import as_metrics_writer, close_writer
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.utils.seeding import rng_state, set_rng_state
from ding_like.worker.collector.loop import RolloutLoop, StopRule, whole_number

# Training rows as a policy's `segment` makes them: columns, or a list of whatever does not stack.
Samples: TypeAlias = "TransitionBatch | list[object]"
# What a collector is asked for so many of.
Unit: TypeAlias = Literal["rows", "episodes"]


class PolicyMode(Protocol):
    """Mode of a policy: one of ours (`types.CollectMode`), or any named tuple with DI-engine's fields."""

    @property
    def get_attribute(self) -> Callable[[str], object]: ...


class ISerialCollector(Configurable, ABC):
    """Collector of data, by stepping environments with a policy in this process."""

    # What the first argument of `collect` counts.
    unit: ClassVar[Unit]

    @abstractmethod
    def reset_env(self, _env: EnvManager | None = None) -> None:
        """Start from fresh episodes, in a new env manager if one is given."""

    # Any: a `PolicyMode`, or one for each player.
    @abstractmethod
    def reset_policy(self, _policy: PolicyLike = None) -> None:
        """Act with a new collect mode if one is given; forget recurrent state in any case."""

    @abstractmethod
    def reset(self, _policy: PolicyLike = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy and all counters."""

    @abstractmethod
    def collect(self, per_collect_target: int | None) -> object:
        """Collect up to the target, which each collector defines, and return the data."""

    def collect_rows(
        self,
        rows: int | None = None,
        *,
        train_iter: int = 0,
        policy_kwargs: Setting | None = None,
        stop: StopRule | None = None,
    ) -> Samples:
        """Collect training rows, whatever `collect` counts: about `rows`, by default what the policy asks for.

        `stop` ends a collection early, between two steps. A collector of one's own need not have this method: `rows`
        is then its target, and a `stop` raises ConfigError.
        """
        if stop is not None:
            raise ConfigError(f"{type(self).__name__} takes no stop rules: define collect_rows with a `stop`.")
        # Pipelines ask every collector with these names.
        given = {"train_iter": train_iter, "policy_kwargs": policy_kwargs}
        collect = cast(Callable[..., Samples], self.collect)
        return collect(**given) if rows is None else collect(rows, **given)

    @property
    @abstractmethod
    def envstep(self) -> int:
        """The number of env steps taken so far, over all lanes."""


def array_manager(env: EnvManager) -> EnvManager:
    """Return the env manager itself, or the one inside of one in DI-engine's style, which steps dicts by env id."""
    return getattr(env, "array_manager", env)


def game_manager(env: EnvManager) -> EnvManager:
    """Return the env manager itself, or the manager of games of one in DI-engine's style (`BaseEnvManager.games`)."""
    games: Callable[[], EnvManager] | None = getattr(env, "games", None)
    return array_manager(env) if games is None else games()


def create_serial_collector(cfg: Config, **kwargs: object) -> ISerialCollector:
    """Build the collector that `cfg.type` names; raises RegistryError for an unknown name."""
    collector: ISerialCollector = SERIAL_COLLECTOR_REGISTRY.build(
        cfg["type"], cfg=cfg, import_names=cfg.get("import_names", ()), **kwargs
    )
    return collector


def get_serial_collector_cls(cfg: Config) -> type[ISerialCollector]:
    """Return the class that `cfg.type` names; raises RegistryError for an unknown name."""
    cls: type[ISerialCollector] = SERIAL_COLLECTOR_REGISTRY.get(cfg["type"], cfg.get("import_names", ()))
    return cls


# Episodes that the means on the console are over.
_RECENT = 100


class Episode(NamedTuple):
    """What is reported of a finished episode."""

    return_: float
    length: int
    metrics: Mapping[str, float]


class CollectReport:
    """Episodes, steps and durations between two log lines; the keys of a report are DI-engine's."""

    def __init__(self) -> None:
        self.total = CollectStats()
        self.recent: deque[Episode] = deque(maxlen=_RECENT)
        self._clear()

    def _clear(self) -> None:
        self.episodes: list[Episode] = []
        self._env_steps = self._samples = 0
        self._duration_s = 0.0

    def add(self, episodes: list[EpisodeRecord], *, env_steps: int, samples: int, duration_s: float) -> None:
        """Count one `collect` call."""
        ended = [Episode(episode.return_, episode.length, episode.metrics) for episode in episodes]
        self.episodes += ended
        self.recent.extend(ended)
        self._env_steps += env_steps
        self._samples += samples
        self._duration_s += duration_s
        self.total.env_steps += env_steps
        self.total.train_samples += samples
        self.total.episodes += len(episodes)

    def take(self) -> Mapping[str, float]:
        """Return the interval's numbers and begin a new one; an episode must have ended."""
        episodes = len(self.episodes)
        # A clock tick of 0 on a very short interval must not divide.
        duration = max(self._duration_s, 1e-9)
        report = {
            "episode_count": episodes,
            "envstep_count": self._env_steps,
            "train_sample_count": self._samples,
            "avg_envstep_per_episode": sum(episode.length for episode in self.episodes) / episodes,
            "avg_sample_per_episode": self._samples / episodes,
            "avg_envstep_per_sec": self._env_steps / duration,
            "avg_train_sample_per_sec": self._samples / duration,
            "avg_episode_per_sec": episodes / duration,
            **reward_stats([episode.return_ for episode in self.episodes]),
            **mean_metrics([episode.metrics for episode in self.episodes]),
            "total_envstep_count": self.total.env_steps,
            "total_train_sample_count": self.total.train_samples,
            "total_episode_count": self.total.episodes,
            "total_dropped_episode_count": self.total.dropped_episodes,
        }
        self._clear()
        return report

    def state_dict(self) -> State:
        """Return totals and the open interval, for an exact resume."""
        return {
            "total": vars(self.total).copy(),
            "episodes": [[*episode[:2], dict(episode.metrics)] for episode in self.episodes],
            "recent": [[*episode[:2], dict(episode.metrics)] for episode in self.recent],
            "open": [self._env_steps, self._samples],
            "duration_s": self._duration_s,
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self.total = CollectStats(**state["total"])
        self.episodes = [Episode(*each) for each in state["episodes"]]
        self.recent = deque((Episode(*each) for each in state["recent"]), maxlen=_RECENT)
        self._env_steps, self._samples = state["open"]
        self._duration_s = state["duration_s"]


def reward_stats(returns: Sequence[float]) -> dict[str, float]:
    """Return mean, deviation and extremes of the returns of episodes, as reports name them."""
    all_returns = np.array(returns)
    return {f"reward_{name}": float(getattr(all_returns, name)()) for name in ("mean", "std", "max", "min")}


class EnvUser(Configurable):
    """Base class of collectors and evaluators: their config, logs and env manager."""

    _env: EnvManager | None = None
    # Returns the manager that is stepped, of the one given.
    _as_manager: Callable[[EnvManager], EnvManager] = staticmethod(array_manager)

    def __init__(self, cfg: Config, tb_logger: object, exp_name: str, instance_name: str) -> None:
        self._cfg = cfg
        self._instance_name = instance_name
        self._logger, _ = build_logger(Path(exp_name, "log", instance_name), instance_name)
        self._tb_logger = tb_logger  # a MetricsSink, a SummaryWriter or None
        self._metrics = as_metrics_writer(tb_logger)
        self._closed = False

    def reset_env(self, _env: EnvManager | None = None) -> None:
        """Reset the env manager, or replace it by the one given and launch that."""
        if _env is not None:
            self._env = self._as_manager(_env)
            self._env.launch()
        elif self._env is not None:
            self._env.reset()

    def close(self) -> None:
        """Close the env manager, `tb_logger` (flushed before) and the text log; may be called again."""
        if not self._closed:
            self._closed = True
            if self._env is not None:
                self._env.close()
            close_writer(self._tb_logger)
            close_logger(self._logger)

    def __del__(self) -> None:
        # A constructor that raised has set nothing yet.
        if hasattr(self, "_closed"):
            self.close()


class BaseSerialCollector(EnvUser, ISerialCollector):
    """Env manager, log, and the loop that a sub-class makes of the env and its policies.

    The loop is made as soon as all are there, and again for another env manager; the env step count continues.
    """

    config: dict[str, Any] = dict(
        # Keys of DI-engine's configs: see `without_effect`.
        deepcopy_obs=False,
        transform_obs=False,
        # Updates between two lines in the collector's log.
        collect_print_freq=100,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"collect_print_freq": FROM_1}
    # Keys of a config that change nothing, and why; read by `config/schema.py`.
    without_effect: ClassVar[Mapping[str, str]] = {
        "deepcopy_obs": "rows are copied where they are stored",
        "transform_obs": "observations stay arrays until the policy takes them",
    }

    _loop: Any = None  # counts `env_steps` from 0

    def __init__(
        self,
        cfg: Config,
        env: EnvManager | None = None,
        policy: PolicyLike = None,  # a `PolicyMode`; in battles a list of them
        tb_logger: object = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "collector",
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(cfg, tb_logger, exp_name, instance_name)
        self._rng = np.random.default_rng(0) if rng is None else rng
        self.reset(policy, env)

    def reset_env(self, _env: EnvManager | None = None) -> None:
        """Start from fresh episodes, in a new env manager if one is given."""
        super().reset_env(_env)
        self._make_loop()

    def reset(self, _policy: PolicyLike = None, _env: EnvManager | None = None) -> None:
        """Reset env, policies and all counters."""
        self._last_print_iter = 0
        self._envstep_offset = 0
        self._loop = None
        self.reset_policy(_policy)
        self.reset_env(_env)

    def _make_loop(self) -> None:
        """Build the loop as soon as its parts are there; the env step count continues."""
        if self._loop is not None:
            self._envstep_offset += self._loop.env_steps
        self._loop = self._new_loop()

    @abstractmethod
    def _new_loop(self) -> Any:
        """Return a loop over the env, None while something lacks."""

    @staticmethod
    def _target(given: int | None, name: str, mode: PolicyMode) -> int:
        """Return the number `given`, else the policy's. Raises ConfigError if there is none, or it is not whole."""
        target = attribute_of(mode, name, None) if given is None else given
        if target is None:
            raise ConfigError(f"collect() needs {name}: pass it, or set policy.collect.{name} in the config.")
        return whole_number(name, target)

    def _print(self, train_iter: int, reports: Sequence[CollectReport]) -> None:
        """Report if it is time; of several players, each with its number."""
        is_due = train_iter - self._last_print_iter >= self._cfg["collect_print_freq"]
        if not is_due or not all(report.episodes for report in reports):
            return
        self._last_print_iter = train_iter
        for player, report in enumerate(reports):
            values = report.take()
            of_player, suffix = (f", player {player}", f"_{player}") if len(reports) > 1 else ("", "")
            line = ", ".join(f"{name} {v:.4g}" if isinstance(v, float) else f"{name} {v}" for name, v in values.items())
            self._logger.info("collect%s: %s", of_player, line)
            named = {name + suffix: value for name, value in values.items()}
            self._metrics.write(self._instance_name, named, env_step=self.envstep, train_iter=train_iter)

    @property
    def envstep(self) -> int:
        """Number of env steps taken so far, over all lanes; dropped ones count."""
        return self._envstep_offset + (self._loop.env_steps if self._loop is not None else 0)

    @envstep.setter
    def envstep(self, value: int) -> None:
        self._envstep_offset = value - (self._loop.env_steps if self._loop is not None else 0)


def attribute_of(policy: PolicyMode, name: str, default: object) -> object:
    """Return an optional attribute of a collect mode; DI-engine's `get_attribute` raises for one that is absent."""
    try:
        return policy.get_attribute(name)
    except NotImplementedError:
        return default


def reads_info(mode: CollectMode) -> bool:
    """Return whether a mode's rows need the env's `info`; by default they do not."""
    return bool(getattr(mode, "reads_info", False))


class LoopCollector(BaseSerialCollector):
    """Collector through a `RolloutLoop`; a sub-class decides when to stop and what to return."""

    _policy: CollectMode | None = None
    _loop: RolloutLoop | None = None
    _step_by: Callable[..., list[EpisodeRecord]] | None = None

    def step_by(self, step: Callable[..., list[EpisodeRecord]]) -> None:
        """Step with `step(loop, setting, policy_version=, idle=)` in place of `RolloutLoop.step`."""
        self._step_by = step
        if self._loop is not None:
            self._loop.step_by = step

    @property
    def is_first(self) -> Array:
        """Lanes that take the first step of an episode next, bool[E]: a live view."""
        return self._parts()[0].is_first

    def reset_policy(self, _policy: PolicyMode | None = None) -> None:
        """Act with a new collect mode if one is given; open episodes continue, recurrent state is cleared."""
        if _policy is not None:
            self._policy = adapt_collect_mode(_policy)
            self._on_policy = bool(attribute_of(self._policy, "on_policy", False))
        if self._loop is None:
            self._make_loop()
        elif self._policy is not None:
            self._loop.use_actor(self._policy.actor, keeps_info=reads_info(self._policy))

    def reset(self, _policy: PolicyMode | None = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy and all counters."""
        self._report = CollectReport()
        super().reset(_policy, _env)

    def _new_loop(self) -> RolloutLoop | None:
        if self._env is None or self._policy is None:
            return None
        loop = RolloutLoop(self._env, self._policy.actor, rng=self._rng, keeps_info=reads_info(self._policy))
        loop.step_by = self._step_by
        return loop

    @property
    def mean_return(self) -> float:
        """Mean return of the last episodes, at most 100; NaN before the first."""
        return _mean([episode.return_ for episode in self._report.recent])

    @property
    def mean_metrics(self) -> dict[str, float]:
        """Means of the envs' own metrics over the last episodes that had some, at most 100."""
        return mean_metrics([episode.metrics for episode in self._report.recent])

    @property
    def mean_length(self) -> float:
        """Mean length of the last episodes, at most 100, in env steps; NaN before the first."""
        return _mean([episode.length for episode in self._report.recent])

    @property
    def dropped_steps(self) -> int:
        """Env steps so far whose rows are not returned: episodes that broke off, a surplus on-policy."""
        return self._report.total.dropped_steps + (0 if self._loop is None else self._loop.dropped_steps)

    def _parts(self) -> tuple[RolloutLoop, CollectMode]:
        if self._loop is None or self._policy is None:
            raise ConfigError("the collector needs an env and a policy before collect(): call reset(policy, env).")
        return self._loop, self._policy

    def _count(
        self, episodes: list[EpisodeRecord], *, first_step: int, samples: int, started_s: float, train_iter: int
    ) -> None:
        """Count one `collect` call that began at env step `first_step` of the loop, and report if it is time."""
        loop, _ = self._parts()
        self._report.total.dropped_episodes = loop.dropped_episodes
        duration_s = time.perf_counter() - started_s
        self._report.add(episodes, env_steps=loop.env_steps - first_step, samples=samples, duration_s=duration_s)
        self._print(train_iter, [self._report])

    def state_dict(self) -> State:
        """Return everything that an exact resume needs, the env manager's journal included."""
        loop, _ = self._parts()
        return {
            "loop": loop.state_dict(),
            "env": self._env.state_dict() if self._env is not None else {},
            "report": self._report.state_dict(),
            "last_print_iter": self._last_print_iter,
            "envstep_offset": self._envstep_offset,
            "rng": rng_state(self._rng),
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned; open episodes are played again by the env manager."""
        loop, _ = self._parts()
        assert self._env is not None, "there is no loop without an env"
        self._env.load_state_dict(state["env"])
        loop.load_state_dict(state["loop"])
        for lane in self._env.lanes_lost:
            loop.drop_episode(lane)
        self._report.load_state_dict(state["report"])
        self._last_print_iter = state["last_print_iter"]
        self._envstep_offset = state["envstep_offset"]
        set_rng_state(self._rng, state["rng"])


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
