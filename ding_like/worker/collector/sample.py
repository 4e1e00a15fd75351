"""Collect a number of training samples at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.records import EpisodeRecord
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import ConfigError
from ding_like.types import CollectMode, EnvManager, State
from ding_like.utils.log import build_logger, close_logger, one_time_warning
from ding_like.utils.metrics import as_metrics_writer
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.utils.seeding import rng_state, set_rng_state
from ding_like.worker.collector.interface import ISerialCollector
from ding_like.worker.collector.loop import RolloutLoop
from ding_like.worker.collector.stats import CollectReport, describe


@SERIAL_COLLECTOR_REGISTRY.register("sample")
class SampleSerialCollector(ISerialCollector):
    """Collect `n_sample` training samples: transitions, n-step rows or sequences, as the policy's `segment` makes them.

    Every step asks all ready lanes, so a call may make more than it was asked for: the surplus leads the next call
    (on-policy: it is dropped and counted, as the policy that made it is gone).
    """

    config: dict[str, Any] = dict(
        type="sample",
        # Accepted for the seed's configs: rows are copied where they are stored, so there is nothing to choose.
        deepcopy_obs=False,
        transform_obs=False,
        # Iterations of the learner between two log lines.
        collect_print_freq=100,
    )

    def __init__(
        self,
        cfg: Mapping[str, Any],
        env: EnvManager | None = None,
        policy: Any = None,  # a collect mode, ours or any named tuple with the seed's fields
        tb_logger: Any = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "collector",
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._cfg = cfg
        self._rng = np.random.default_rng(0) if rng is None else rng
        self._instance_name = instance_name
        self._logger, _ = build_logger(f"./{exp_name}/log/{instance_name}", instance_name)
        self._metrics = as_metrics_writer(tb_logger)
        self._env: EnvManager | None = None
        self._policy: CollectMode | None = None
        self._loop: RolloutLoop | None = None
        self._closed = False
        self._envstep_offset = 0
        self.reset(policy, env)

    # ---- what it works with

    def reset_env(self, _env: EnvManager | None = None) -> None:
        """Start from fresh episodes, in a new env manager if one is given."""
        if _env is not None:
            self._env = _env
            self._env.launch()
        elif self._env is not None:
            self._env.reset()
        self._make_loop()

    def reset_policy(self, _policy: Any = None) -> None:
        """Act with a new collect mode if one is given; open episodes go on, recurrent state is forgotten."""
        if _policy is not None:
            self._policy = adapt_collect_mode(_policy)
            self._on_policy = bool(_attribute(self._policy, "on_policy", False))
            self._default_n_sample = _attribute(self._policy, "n_sample", None)
        if self._loop is None:
            self._make_loop()
        elif self._policy is not None:
            self._loop.use_actor(self._policy.actor)

    def reset(self, _policy: Any = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy and all counters."""
        self._report = CollectReport()
        self._last_print_iter = 0
        self._surplus: Any = None
        self._envstep_offset = 0
        self._loop = None
        self.reset_policy(_policy)
        self.reset_env(_env)

    def _make_loop(self) -> None:
        """Build the loop as soon as there are an env and a policy; the env step count goes on."""
        if self._loop is not None:
            self._envstep_offset += self._loop.env_steps
        self._loop = None
        if self._env is not None and self._policy is not None:
            self._loop = RolloutLoop(self._env, self._policy.actor, rng=self._rng)

    @property
    def envstep(self) -> int:
        """Return the number of env steps taken so far, over all lanes; dropped ones count."""
        return self._envstep_offset + (self._loop.env_steps if self._loop is not None else 0)

    @envstep.setter
    def envstep(self, value: int) -> None:
        self._envstep_offset = value - (self._loop.env_steps if self._loop is not None else 0)

    @property
    def mean_return(self) -> float:
        """Return the mean return of the last episodes, at most 100; NaN before the first."""
        recent = self._report.recent_returns
        return sum(recent) / len(recent) if recent else float("nan")

    # ---- collecting

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        random_collect: bool = False,
        record_random_collect: bool = True,
        policy_kwargs: Mapping[str, Any] | None = None,
        level_seeds: Mapping[int, int] | None = None,
    ) -> Any:
        """Return `n_sample` training samples (default: the policy's), as a TransitionBatch where rows stack.

        `train_iter` is stored as the rows' `policy_version`. With `drop_extra=False` the surplus is returned too.
        `policy_kwargs` goes to the actor (`eps`). `level_seeds` (env id -> seed) adds a column `seed`.
        Raises ConfigError if neither `n_sample` nor the policy says how many.
        """
        loop, _ = self._parts()
        target = self._default_n_sample if n_sample is None else n_sample
        if target is None:
            raise ConfigError("collect() needs n_sample: pass it, or set policy.collect.n_sample in the config.")
        if target % loop.rollout.num_lanes and not random_collect:
            one_time_warning(
                f"n_sample {target} is not a multiple of {loop.rollout.num_lanes} envs: each call keeps a surplus "
                "for the next one."
            )
        started, first_step = time.perf_counter(), loop.env_steps
        samples, episodes = self._collect_rows(target, dict(policy_kwargs or {}), train_iter)
        if level_seeds is not None:
            seeds = np.array([level_seeds[int(env)] for env in samples["env_id"]], np.int64)
            samples = samples.with_columns(seed=seeds)
        samples = self._put_surplus_by(samples, target, drop_extra=drop_extra)
        self._report.total.dropped_episodes = loop.dropped_episodes
        self._report.add(
            episodes,
            env_steps=loop.env_steps - first_step,
            samples=len(samples),
            duration_s=time.perf_counter() - started,
        )
        if random_collect and not record_random_collect:
            self._report.forget()
        else:
            self._print(train_iter)
        return samples

    def _parts(self) -> tuple[RolloutLoop, CollectMode]:
        if self._loop is None or self._policy is None:
            raise ConfigError("the collector needs an env and a policy before collect(): call reset(policy, env).")
        return self._loop, self._policy

    def _collect_rows(self, target: int, setting: dict[str, Any], train_iter: int) -> tuple[Any, list[EpisodeRecord]]:
        """Step until there are `target` samples, the surplus of the last call included."""
        loop, policy = self._parts()
        samples, episodes = self._surplus, []
        self._surplus = None
        have = 0 if samples is None else len(samples)
        while have < target:
            episodes += loop.step(setting, policy_version=train_iter)
            # A policy never makes more samples than rows, so most steps need no closer look.
            if have + len(loop.rollout) < target or have + loop.num_ready(policy.num_ready) < target:
                continue
            samples = _join(samples, loop.take(policy.segment))
            have = len(samples)
        return samples, episodes

    def _put_surplus_by(self, samples: Any, target: int, *, drop_extra: bool) -> Any:
        loop, _ = self._parts()
        if self._on_policy:
            # What is left over was made by the policy that the next update replaces.
            extra = max(len(samples) - target, 0) if drop_extra else 0
            self._report.total.dropped_steps += extra + len(loop.rollout)
            loop.forget_rows()
            return samples[:target] if extra else samples
        if drop_extra and len(samples) > target:
            self._surplus = samples[target:]
            return samples[:target]
        return samples

    # ---- saying what happened

    def _print(self, train_iter: int) -> None:
        if train_iter - self._last_print_iter < self._cfg["collect_print_freq"] and train_iter > 0:
            return
        if not self._report.has_episodes:
            return
        self._last_print_iter = train_iter
        report = self._report.take()
        self._logger.info("collect: %s", describe(report))
        self._metrics.write(self._instance_name, report, env_step=self.envstep, train_iter=train_iter)

    def state_dict(self) -> State:
        """Return everything that an exact resume needs, the env manager's journal included."""
        loop, _ = self._parts()
        surplus = self._surplus
        return {
            "loop": loop.state_dict(),
            "env": self._env.state_dict() if self._env is not None else {},
            "report": self._report.state_dict(),
            "surplus": dict(surplus.columns) if isinstance(surplus, TransitionBatch) else surplus,
            "last_print_iter": self._last_print_iter,
            "envstep_offset": self._envstep_offset,
            "rng": rng_state(self._rng),
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned; open episodes are played again by the env manager."""
        loop, _ = self._parts()
        assert self._env is not None
        self._env.load_state_dict(state["env"])
        loop.load_state_dict(state["loop"])
        loop.drop_lanes(list(getattr(self._env, "lanes_lost", ())))
        self._report.load_state_dict(state["report"])
        surplus = state["surplus"]
        self._surplus = TransitionBatch(surplus) if isinstance(surplus, dict) else surplus
        self._last_print_iter = state["last_print_iter"]
        self._envstep_offset = state["envstep_offset"]
        set_rng_state(self._rng, state["rng"])

    def close(self) -> None:
        """Close the env manager and the text log; may be called again."""
        if self._closed:
            return
        self._closed = True
        if self._env is not None:
            self._env.close()
        close_logger(self._logger)

    def __del__(self) -> None:
        # A constructor that raised has set nothing yet.
        if hasattr(self, "_closed"):
            self.close()


def _attribute(mode: Any, name: str, default: Any) -> Any:
    """Return an optional attribute of a policy; the seed's `get_attribute` raises for one that is absent."""
    try:
        return mode.get_attribute(name)
    except NotImplementedError:
        return default


def _join(first: Any, second: Any) -> Any:
    """Join samples in order: batches as columns, anything else as a list."""
    if first is None or not len(first):
        return second
    if not len(second):
        return first
    if isinstance(first, TransitionBatch) and isinstance(second, TransitionBatch):
        return TransitionBatch.concat([first, second])
    return [*first, *second]
