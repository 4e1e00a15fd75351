"""Checks of a config: what is valid, but does not train as the user may expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from ding_like.config.tree import get_path
from ding_like.envs.check import Finding
from ding_like.types import Config

# From here on a limit is none: DI-engine's defaults are 1e10.
_NO_LIMIT = 1e9
# On-policy, a policy that learns from fewer collections has hardly changed.
_FEW_COLLECTIONS = 5
# A row that is sampled less, or more often than this, is an order of magnitude beyond what any published setting does.
_LEAST_USE, _MOST_USE = 0.05, 20_000
_HIGH_RATE, _LOW_RATE = 0.05, 1e-7
_TINY_CLIP = 1e-4
_SMALL_DISCOUNT = 0.5
_LEAST_BOOTSTRAP = 0.05  # weight of the value behind an n-step return
_RANDOM_EPS = 0.5
_EVAL_EPISODES = 3  # of fewer, the mean is a matter of luck


@dataclass(frozen=True)
class Subject:
    """Compiled config with the limits of a run of it; a limit that is not known is infinite."""

    main: Config
    max_env_step: float = math.inf
    max_train_iter: float = math.inf

    def get(self, path: str, default: Any = None) -> Any:  # Any: values of a config
        """Return the value of a key, or `default` where the config has none."""
        value = get_path(self.main, path)
        return default if value is None else value

    def number(self, path: str) -> float:
        """Return the number of a key, NaN where it has none."""
        value = self.get(path)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan

    @property
    def has_env_limit(self) -> bool:
        return self.max_env_step < _NO_LIMIT

    @property
    def on_policy(self) -> bool:
        return bool(self.get("policy.on_policy"))

    @property
    def rows_per_collection(self) -> float:
        """Rows of one collection: every env takes the same number of steps. NaN for episodes, and for data sets."""
        rows, envs = self.number("policy.collect.n_sample"), self.number("env.collector_env_num")
        return rows if math.isnan(envs) else math.ceil(rows / envs) * envs if rows > 0 else math.nan

    @property
    def updates_per_collection(self) -> float:
        """Updates after a collection, NaN where it is not known; on-policy, minibatches of all epochs."""
        if not self.on_policy:
            return self.number("policy.learn.update_per_collect")
        batch, epochs = self.number("policy.learn.batch_size"), self.number("policy.learn.epoch_per_collect")
        minibatches = 1.0 if math.isnan(batch) else float(np.ceil(self.rows_per_collection / batch))
        return minibatches * (1.0 if math.isnan(epochs) else epochs)

    @property
    def updates(self) -> float:
        """Updates of the whole run by its limits, NaN where they are not known."""
        collects = self.rows_per_collection > 0
        learning = self.max_env_step - self.number("policy.random_collect_size") * (not self.on_policy)
        if collects and self.has_env_limit:
            collections = max(learning, 0.0) / self.rows_per_collection
            return min(collections * self.updates_per_collection, self.max_train_iter)
        return self.max_train_iter if self.max_train_iter < _NO_LIMIT else math.nan


Check = Callable[[Subject], Iterator[Finding]]


def check_config(subject: Subject) -> list[Finding]:
    """Return what is odd in a config, in the order of the checks."""
    return [finding for check in CHECKS for finding in check(subject)]


def reason_of_no_update(policy: Config, max_env_step: float) -> tuple[str, int] | None:
    """Return why a budget of env steps ends before the first update, and above what it has to be; None if it does not.

    Only replay buffers can be too empty: an on-policy run learns from each collection.
    """
    if policy.get("on_policy"):
        return None
    at_random, batch = policy.get("random_collect_size") or 0, policy.get("learn", {}).get("batch_size") or 0
    segment = policy.get("collect", {}).get("n_sample") or math.inf  # the last one may go beyond the budget
    if max_env_step <= at_random:
        return f"end in the random phase (policy.random_collect_size={at_random:,})", at_random
    if max_env_step + segment <= batch:
        return f"bring fewer rows than policy.learn.batch_size={batch:,}", batch
    return None


def _no_update(subject: Subject) -> Iterator[Finding]:
    collects = subject.number("policy.collect.n_sample") > 0 or subject.number("policy.collect.n_episode") > 0
    is_limited = subject.has_env_limit and collects  # a run from a data set takes no env steps
    found = reason_of_no_update(subject.get("policy", {}), subject.max_env_step) if is_limited else None
    if found is not None:
        reason, enough = found
        seen = f"{subject.max_env_step:,.0f} env steps {reason}: nothing is learned"
        yield Finding("fault", "no update", seen, f"more than {enough:,} env steps", f"give --env-step {10 * enough}")
    elif subject.max_train_iter < 1:
        yield Finding("fault", "no update", "the limit is 0 updates", "1 update or more", "give --train-iter 1000")


def _few_collections(subject: Subject) -> Iterator[Finding]:
    rows = subject.rows_per_collection
    if not (subject.on_policy and subject.has_env_limit and rows > 0):
        return
    number = subject.max_env_step / rows
    if number < _FEW_COLLECTIONS:
        seen = f"{subject.max_env_step:,.0f} env steps are {number:.1f} collections of {rows:,.0f} rows"
        fix = f"give --env-step {20 * rows:.0f}, or policy.collect.n_sample={max(subject.max_env_step // 20, 1):.0f}"
        yield Finding("warning", "few updates", seen, f"{_FEW_COLLECTIONS} collections or more", fix)


def _random_phase(subject: Subject) -> Iterator[Finding]:
    at_random, budget = subject.number("policy.random_collect_size"), subject.max_env_step
    if subject.has_env_limit and budget / 2 < at_random < budget:
        seen = f"{at_random:,.0f} of {budget:,.0f} env steps take random actions (policy.random_collect_size)"
        fix = f"policy.random_collect_size={budget / 20:.0f}, or --env-step {10 * at_random:.0f}"
        yield Finding("warning", "random phase", seen, "less than half of the run", fix)


def _evaluation(subject: Subject) -> Iterator[Finding]:
    every, updates = subject.number("policy.eval.evaluator.eval_freq"), subject.updates
    if every > updates > 0:
        stop = subject.number("env.stop_value")
        why = f", and env.stop_value={stop:g} can end it at the very end alone" if stop < _NO_LIMIT else ""
        seen = f"an evaluation follows every {every:,.0f} updates, but the run has about {updates:,.0f}{why}"
        fix = f"policy.eval.evaluator.eval_freq={max(updates // 10, 1):.0f}"
        yield Finding("warning", "evaluation", seen, "several evaluations, of which the best model is kept", fix)
    episodes = subject.number("env.n_evaluator_episode")
    if episodes < _EVAL_EPISODES and subject.number("env.stop_value") < _NO_LIMIT:
        seen = f"env.stop_value is reached by the mean of {episodes:.0f} episodes"
        expected = f"{_EVAL_EPISODES} episodes or more, so that luck does not end the run"
        yield Finding("note", "evaluation", seen, expected, "env.n_evaluator_episode=10")


def _exploration(subject: Subject) -> Iterator[Finding]:
    eps = subject.get("policy.other.eps")
    if not isinstance(eps, Mapping) or not {"start", "end", "decay"} <= set(eps):
        return
    start, end, decay = (float(eps[name]) for name in ("start", "end", "decay"))
    if end >= _RANDOM_EPS:
        seen = f"epsilon ends at {end:g}: most actions stay random"
        yield Finding("note", "exploration", seen, "0.1 or less, unless that is meant", "policy.other.eps.end=0.05")
    if not subject.has_env_limit or start <= end:
        return
    budget = subject.max_env_step
    left = math.exp(-budget / decay) if eps.get("type") == "exp" else max(1 - budget / decay, 0.0)
    if left > 0.5:
        value = end + (start - end) * left
        seen = f"epsilon is still {value:.2f} after {budget:,.0f} env steps (decay={decay:g}, end={end:g})"
        fix = f"policy.other.eps.decay={max(budget / 5, 1):.0f}"
        yield Finding("warning", "exploration", seen, f"close to {end:g} well before the end of the run", fix)


def _learning_rate(subject: Subject) -> Iterator[Finding]:
    for name in ("learning_rate", "learning_rate_actor", "learning_rate_critic"):
        rate, path = subject.number(f"policy.learn.{name}"), f"policy.learn.{name}"
        if rate > _HIGH_RATE:
            seen = f"{path} is {rate:g}, at which Adam's steps overshoot"
            yield Finding("warning", "learning rate", seen, "1e-5 to 1e-2", f"{path}=1e-3")
        elif rate < _LOW_RATE:
            seen = f"{path} is {rate:g}: the networks hardly move"
            yield Finding("warning", "learning rate", seen, "1e-5 to 1e-2", f"{path}=1e-3")
    steps, rate_end = subject.number("policy.learn.schedule.env_steps"), subject.number("policy.learn.schedule.lr_end")
    if subject.has_env_limit and steps < 0.8 * subject.max_env_step and (math.isnan(rate_end) or rate_end <= 0):
        seen = f"the learning rate is 0 from env step {steps:,.0f} of {subject.max_env_step:,.0f} on"
        fix = f"policy.learn.schedule.env_steps={subject.max_env_step:.0f}"
        yield Finding("warning", "learning rate", seen, "a schedule as long as the run", fix)


def _gradient_clip(subject: Subject) -> Iterator[Finding]:
    clip = subject.number("policy.learn.grad_clip_norm")
    if clip < _TINY_CLIP:
        seen = f"policy.learn.grad_clip_norm is {clip:g}: gradients are cut to almost nothing"
        yield Finding("warning", "gradient", seen, "0.5 to 10", "policy.learn.grad_clip_norm=0.5")


def _discount(subject: Subject) -> Iterator[Finding]:
    gamma = subject.number("policy.discount_factor")
    if gamma == 1 and time_limit(subject.get("env", {})) == math.inf:
        seen = "policy.discount_factor is 1, and nothing ends an episode of this env for certain: values have no bound"
        fix = "policy.discount_factor=0.99, or env.max_episode_steps=1000"
        yield Finding("warning", "discount", seen, "below 1, or episodes with a time limit", fix)
    elif 0 <= gamma < _SMALL_DISCOUNT:
        reach = 1 if gamma == 0 else _reach(gamma)
        seen = f"policy.discount_factor is {gamma:g}: rewards more than {reach} steps away hardly count"
        expected = "0.9 to 0.999 where actions have later effects"
        yield Finding("warning", "discount", seen, expected, "policy.discount_factor=0.99")


def _reach(gamma: float) -> int:
    """Return after how many steps a reward weighs a tenth."""
    return math.ceil(math.log(0.1) / math.log(gamma))


def _nstep(subject: Subject) -> Iterator[Finding]:
    steps, gamma = subject.number("policy.nstep"), subject.number("policy.discount_factor")
    limit = time_limit(subject.get("env", {}))
    if not steps > 1:
        return
    if steps >= limit:
        seen = f"policy.nstep is {steps:.0f}, and an episode has {limit:.0f} env steps at most"
        yield Finding("warning", "n-step return", seen, "far fewer steps than an episode", "policy.nstep=3")
    elif gamma**steps < _LEAST_BOOTSTRAP:
        seen = f"of {steps:.0f} steps at discount {gamma:g} the value behind them weighs {gamma**steps:.1%}"
        yield Finding("warning", "n-step return", seen, "a value that counts", "policy.nstep=3")


def _target_network(subject: Subject) -> Iterator[Finding]:
    every, mixes = subject.number("policy.learn.target_update_freq"), subject.number("policy.learn.target_theta")
    if every > subject.updates > 0 and math.isnan(mixes):
        seen = f"the target network is copied every {every:,.0f} updates, but the run has about {subject.updates:,.0f}"
        fix = f"policy.learn.target_update_freq={max(subject.updates // 50, 1):.0f}"
        yield Finding("warning", "target network", seen, "many copies in a run", fix)


def _buffer(subject: Subject) -> Iterator[Finding]:
    path = "policy.other.replay_buffer"
    size, rows = subject.number(f"{path}.replay_buffer_size"), subject.rows_per_collection
    if subject.on_policy or subject.get(f"{path}.size_unit", "rows") != "rows":
        return
    at_random = subject.number("policy.random_collect_size")
    if size < rows:
        seen = f"one collection brings {rows:,.0f} rows, and {path}.replay_buffer_size is {size:,.0f}"
        fix = f"{path}.replay_buffer_size={20 * rows:.0f}"
        yield Finding("warning", "buffer", f"{seen}: some are dropped before they are used", "room for several", fix)
    elif size < at_random:
        seen = f"policy.random_collect_size is {at_random:,.0f}, and {path}.replay_buffer_size is {size:,.0f}"
        fix = f"{path}.replay_buffer_size={10 * at_random:.0f}"
        yield Finding("warning", "buffer", f"{seen}: the first rows are dropped before an update", "room for all", fix)


def _replay_ratio(subject: Subject) -> Iterator[Finding]:
    batch, rows = subject.number("policy.learn.batch_size"), subject.rows_per_collection
    if subject.on_policy or math.isnan(batch):
        return
    uses = subject.updates_per_collection * batch / rows  # of sequences, more: each is of several env steps
    if uses < _LEAST_USE:
        seen = f"a row is sampled {uses:.3g} times on average: most are never learned from"
        fix = f"policy.learn.update_per_collect={max(rows // batch, 1):.0f}, or policy.collect.n_sample={batch:.0f}"
        yield Finding("warning", "replay ratio", seen, "once or more", fix)
    elif uses > _MOST_USE:
        seen = f"a row is sampled {uses:,.0f} times on average"
        yield Finding("warning", "replay ratio", seen, "up to some hundreds", "policy.learn.update_per_collect=1")


def _envs(subject: Subject) -> Iterator[Finding]:
    asked, rows = subject.number("policy.collect.n_sample"), subject.rows_per_collection
    if not subject.on_policy and rows > 2 * asked:
        envs = subject.number("env.collector_env_num")
        seen = f"{envs:.0f} envs take a step each, so that a collection has {rows:.0f} rows, not n_sample={asked:.0f}"
        fix = f"policy.collect.n_sample={rows:.0f}, or env.collector_env_num={asked:.0f}"
        yield Finding("warning", "envs", seen, "as many rows as updates are meant for", fix)


def _entropy(subject: Subject) -> Iterator[Finding]:
    weight = subject.number("policy.learn.entropy_weight")
    if weight > 0.5:
        seen = f"policy.learn.entropy_weight is {weight:g}: random actions pay more than rewards"
        yield Finding("warning", "entropy", seen, "0 to 0.05", "policy.learn.entropy_weight=0.01")


def time_limit(env: Config) -> float:
    """Return after how many env steps an episode of an env section is cut, inf for never, NaN where it is not known."""
    given, env_id = env.get("max_episode_steps"), env.get("env_id")
    if isinstance(given, int):
        return given
    spec = gymnasium.registry.get(str(env_id))
    if spec is None:
        return math.nan
    return math.inf if spec.max_episode_steps is None else spec.max_episode_steps


CHECKS: tuple[Check, ...] = (
    _no_update,
    _few_collections,
    _random_phase,
    _evaluation,
    _exploration,
    _learning_rate,
    _gradient_clip,
    _discount,
    _nstep,
    _target_network,
    _buffer,
    _replay_ratio,
    _envs,
    _entropy,
)
