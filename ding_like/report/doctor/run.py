"""Checks of a run by what its folder holds: metrics, result and config, whether it has ended or not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ding_like.envs.check import Finding
from ding_like.report.doctor.config import Subject, check_config, time_limit
from ding_like.report.experiment import (
    METRICS_FILE,
    check_experiment,
    read_lines,
    read_plan,
    read_result,
    read_settings,
    seed_folder,
)
from ding_like.report.scores import measure
from ding_like.types import Array, Config

_SILENT_S = 600.0  # after which a run that has not ended may be dead
_FEW_REPORTS = 5  # below which a trend is no trend
_SATURATED = 5.0  # times the largest value that rewards allow
_COLLAPSED = 0.01  # of the first entropy
_LANE_STEPS = 5_000  # env steps of a lane within which an episode is expected to end
_OLD_ROWS = 1_000.0  # updates between the weights that acted and those that learn
_SHARE = 0.1  # of rows or episodes that may be lost
_EVAL_SHARE = 0.5
_CLIPPED, _LARGE_KL = 0.5, 0.2
_LARGE_ALPHA = 50.0
_LOST_GAIN = 0.5  # of what was gained
_SLOW = 0.5  # of the updates that the config asks for
_MIN_UPDATES, _MANY_UPDATES = 200, 2_000


@dataclass(frozen=True)
class RunFiles:
    """Content of a run's folder that the checks read."""

    folder: Path
    lines: Sequence[Config]  # of metrics.jsonl
    result: Config  # empty for a run that has not ended
    subject: Subject  # its config, with the env steps that it took as the limit
    silent_s: float  # since it wrote last

    def values(self, name: str, source: str = "learner") -> Array:
        """Return the values [N] of a metric in the order of the file; parts name their averages `{name}_avg`."""
        names = (name, f"{name}_avg")
        rows = (line for line in self.lines if line["source"] == source)
        return np.array([float(line[each]) for line in rows for each in names if each in line], np.float64)

    def names(self, source: str) -> list[str]:
        """Return the names of a source's metrics, in the order of the file."""
        return list(dict.fromkeys(name for line in self.lines if line["source"] == source for name in line))

    @cached_property
    def env_step(self) -> int:
        return int(max([self.result.get("env_step", 0), *(line["env_step"] for line in self.lines)]))

    @cached_property
    def train_iter(self) -> int:
        return int(max([self.result.get("train_iter", 0), *(line["train_iter"] for line in self.lines)]))

    @cached_property
    def evaluations(self) -> Array:
        """Mean returns of the evaluations."""
        return self.values("reward_mean", "evaluator")

    @property
    def is_solved(self) -> bool:
        """Whether the run reached its stop value."""
        return bool(self.result.get("stop"))


Check = Callable[[RunFiles], Iterator[Finding]]


def check_run(folder: str | Path) -> list[Finding]:
    """Return what is odd in the run, or in each of the seeds, of an experiment's folder.

    Raises ConfigError for a folder without a run.
    """
    folder = Path(folder)
    plan = read_plan(folder)
    if plan is None:
        check_experiment(folder)
        return _check_one(read_run_files(folder))
    found = []
    for seed in plan.seeds:
        own = seed_folder(folder, seed)
        if (own / "total_config.py").is_file():
            found += [replace(each, topic=f"seed {seed}, {each.topic}") for each in _check_one(read_run_files(own))]
        else:
            found.append(Finding("note", f"seed {seed}", "it has not begun", fix=f"ding --resume {folder}"))
    return found


def read_run_files(folder: Path) -> RunFiles:
    """Return what the folder of one run holds."""
    path = folder / METRICS_FILE
    lines = read_lines(path) if path.is_file() else []
    result, newest = read_result(folder), path if path.is_file() else folder / "total_config.py"
    # A run that was solved early, or goes on, had no limit that its schedules could have been made for.
    limit = result["env_step"] if result and not result["stop"] and result["env_step"] else math.inf
    subject = Subject(read_settings(folder), limit)
    return RunFiles(folder, lines, result, subject, time.time() - newest.stat().st_mtime)


def _check_one(run: RunFiles) -> list[Finding]:
    found = [finding for check in CHECKS for finding in check(run)]
    topics = {each.topic for each in found}
    # What the run shows needs no second finding that the config foretells.
    return found + [each for each in check_config(run.subject) if each.topic not in topics]


def _state(run: RunFiles) -> Iterator[Finding]:
    if run.result or run.silent_s < _SILENT_S:
        return
    minutes = run.silent_s / 60
    if run.lines:
        seen = f"it has not ended, and has written nothing for {minutes:,.0f} minutes"
        yield Finding("note", "state", seen, fix=f"if it does not run any more: ding --resume {run.folder}")
    else:
        seen = f"it has written no metrics in {minutes:,.0f} minutes: not even the first evaluation has ended"
        expected = "an evaluation before the first update; its episodes have to end"
        yield Finding("warning", "no evaluation", seen, expected, "env.max_episode_steps=1000 cuts endless episodes")


def _no_update(run: RunFiles) -> Iterator[Finding]:
    subject = run.subject
    # A run of a data set takes no env steps; one that has begun may still fill its buffer.
    needed = np.nanmax([subject.number(f"policy.{key}") for key in ("random_collect_size", "learn.batch_size")] + [0])
    if run.train_iter == 0 and run.env_step > 0 and (run.result or run.env_step > 10 * needed + 1000):
        seen = f"{run.env_step:,} env steps, and no update: nothing was learned"
        size = subject.number("policy.other.replay_buffer.replay_buffer_size")
        expected = f"updates once there are {needed:,.0f} rows" + ("" if math.isnan(size) else f"; buffer {size:,.0f}")
        fix = f"give more than {10 * needed:,.0f} env steps, or lower random_collect_size and batch_size"
        yield Finding("fault", "no update", seen, expected, fix)


def _nonfinite(run: RunFiles) -> Iterator[Finding]:
    for name in run.names("learner"):
        if name in ("source", "env_step", "train_iter", "time_s"):
            continue
        is_bad = ~np.isfinite(run.values(name))
        if is_bad.any():
            seen = f"{name} is not finite in {is_bad.sum()} of {len(is_bad)} reports"
            fix = "a smaller learning rate, policy.learn.grad_clip_norm=0.5, and `ding check-env ID` for its numbers"
            yield Finding("fault", "not finite", seen, "finite numbers", fix)
            return


def _constant_loss(run: RunFiles) -> Iterator[Finding]:
    for name in ("total_loss", "critic_loss", "loss"):
        losses = run.values(name)
        if len(losses) >= _FEW_REPORTS and np.isfinite(losses).all() and np.ptp(losses) == 0:
            seen = f"{name} was {losses[0]:g} in all {len(losses)} reports"
            fix = "look whether all rewards are 0 (`ding check-env ID`), and whether the optimizer has the parameters"
            yield Finding("fault", "constant loss", seen, "a loss that changes", fix)
            return


def _evaluation_constant(run: RunFiles) -> Iterator[Finding]:
    means, stop = run.evaluations, run.subject.number("env.stop_value")
    if len(means) < _FEW_REPORTS or run.train_iter < _MIN_UPDATES or np.ptp(means) > 0 or means[0] >= stop:
        return
    seen = f"all {len(means)} evaluations returned {measure(means[0])}, from the first to the last"
    fix = "more exploration, a reward that comes earlier, or `ding check-env ID` for an env that ignores its actions"
    yield Finding("warning", "return", seen, "a return that changes as the policy does", fix)


def _no_progress(run: RunFiles) -> Iterator[Finding]:
    """Yield a warning if an ended run's evaluations never left the range of the untrained policy's episodes."""
    means, deviations = run.evaluations, run.values("reward_std", "evaluator")
    if len(means) < _FEW_REPORTS or not run.result or run.is_solved or run.train_iter < _MANY_UPDATES:
        return
    bound = means[0] + max(deviations[0], 0.0)
    if np.ptp(means) > 0 and means[1:].max() <= bound and means[-len(means) // 3 :].mean() <= means[0]:
        returns = f"the return is {measure(means[-1])}, and was {measure(means[0])} untrained"
        seen = f"after {run.train_iter:,} updates {returns}"
        fix = "`ding diff` with a config that learns, a smaller learning rate, and `ding check-env ID`"
        yield Finding("warning", "return", seen, "a return that rises", fix)


def _lost_gain(run: RunFiles) -> Iterator[Finding]:
    means, result = run.evaluations, run.result
    if len(means) < _FEW_REPORTS or not result or run.is_solved:
        return
    best, first, last = float(means.max()), float(means[0]), float(result["eval_value"])
    returns = np.array(result["eval_value_raw"], np.float64)
    noise = 2 * returns.std() / math.sqrt(len(returns))
    if best > first and best - last > _LOST_GAIN * (best - first) + noise:
        others = f"the best evaluation was {measure(best)}, the first {measure(first)}"
        seen = f"the last model returns {measure(last)}; {others}"
        fix = "use ckpt/ckpt_best.pth.tar; for the next run a smaller learning rate, or one that falls"
        yield Finding("warning", "return", seen, "a last model close to the best", fix)


def _saturated_values(run: RunFiles) -> Iterator[Finding]:
    """Yield values beyond what rewards allow: the largest reward of a step, for ever, or a whole return."""
    main = run.subject.main
    changes_rewards = bool(main.get("reward_model")) or "reward" in str(main.get("env", {}).get("wrappers", ""))
    values = run.values("q_value")
    values = values[np.isfinite(values)]
    if changes_rewards or len(values) < _FEW_REPORTS:
        return
    bound = _value_bound(run)
    largest = float(np.abs(values[-max(len(values) // 4, 1) :]).mean())
    if bound > 0 and largest > _SATURATED * bound:
        seen = f"values average {measure(largest)} in size, and rewards allow about {measure(bound)}"
        fix = (
            "policy.learn.target_update_freq larger (or target_theta smaller), a smaller learning rate, or double=True"
        )
        yield Finding("warning", "values", seen, "values below the largest discounted return", fix)


def _value_bound(run: RunFiles) -> float:
    """Return about how large a value can be, NaN without returns."""
    reports = [line for line in run.lines if {"reward_min", "reward_max", "reward_mean"} <= line.keys()]
    if not reports:
        return math.nan
    returns = max(max(abs(float(line["reward_min"])), abs(float(line["reward_max"]))) for line in reports)
    lengths = [(float(line["reward_mean"]), float(line.get("avg_envstep_per_episode", 1) or 1)) for line in reports]
    gamma = run.subject.number("policy.discount_factor")
    horizon = 1 / (1 - gamma) if 0 <= gamma < 1 else 0.0
    entropy, alpha = run.values("entropy"), run.values("alpha")
    bonus = float(np.abs(alpha).max() * np.abs(entropy).max()) if len(entropy) and len(alpha) else 0.0
    a_step = max(abs(mean) / length for mean, length in lengths) + (bonus if math.isfinite(bonus) else 0.0)
    return max(returns, a_step * horizon)


def _entropy(run: RunFiles) -> Iterator[Finding]:
    values = run.values("entropy")
    third = len(values) // 3
    # Of discrete actions; that of densities may be negative.
    if third < 2 or run.is_solved or not (np.isfinite(values).all() and values.min() >= 0 and values[0] > 0.1):
        return
    collapsed = values < _COLLAPSED * values[0]
    means, late = run.evaluations, len(run.evaluations) // 3
    improves = late and means[late:].max() > means[:late].max()
    if collapsed[third:].all() and not improves:
        fell = f"from {values[0]:.3g} to {values[third]:.2g} in the first third"
        seen = f"entropy fell {fell}, and the return has not risen since"
        fix = "policy.learn.entropy_weight=0.01 or more, or a smaller learning rate"
        yield Finding("warning", "entropy", seen, "actions that vary until the return is high", fix)


def _no_episode(run: RunFiles) -> Iterator[Finding]:
    """Yield a fault if collectors have reported no return: they report once an episode has ended."""
    lanes, limit = run.subject.number("env.collector_env_num"), time_limit(run.subject.get("env", {}))
    has_ended = "reward_mean" in run.names("collector")
    of_lane, enough = run.env_step / lanes if lanes > 0 else 0.0, 2 * limit if math.isfinite(limit) else _LANE_STEPS
    is_due = run.train_iter > 3 * run.subject.get("policy.collect.collector.collect_print_freq", 100)
    if is_due and not has_ended and of_lane > enough:
        seen = f"{run.env_step:,} env steps in {lanes:.0f} lanes, and no episode has ended in one"
        expected = f"an end within {enough:,.0f} env steps of a lane"
        yield Finding("fault", "episodes", seen, expected, "env.max_episode_steps=1000, or terminated=True in the env")


def _dropped_episodes(run: RunFiles) -> Iterator[Finding]:
    dropped = run.values("total_dropped_episode_count", "collector")
    ended = run.values("total_episode_count", "collector")
    if len(dropped) and dropped[-1] > 0:
        why = "their env raised, or gave numbers that are not finite"
        seen = f"{dropped[-1]:,.0f} episodes were dropped, {ended[-1]:,.0f} ended: {why}"
        fix = "the run's log names the line of the env; `ding check-env ID` looks for more"
        is_many = dropped[-1] > _SHARE * ended[-1]
        yield Finding("fault" if is_many else "warning", "episodes", seen, "none", fix)


def _policy_lag(run: RunFiles) -> Iterator[Finding]:
    lag = np.concatenate([run.values("PolicyLag", source) for source in ("collector", "updates")])
    if len(lag) < _FEW_REPORTS:
        return
    mean = float(lag[len(lag) // 2 :].mean())
    own = run.subject.updates_per_collection
    allowed = 2 * own if run.subject.on_policy and own > 0 else _OLD_ROWS
    if mean > allowed:
        seen = f"rows are {mean:,.0f} updates old when they are learned from"
        kind = "on-policy: those of the last collections" if run.subject.on_policy else "some hundreds"
        fix = "more collectors, a smaller policy.learn.update_per_collect, or max_policy_lag in the system_config"
        yield Finding("warning", "policy lag", seen, f"{allowed:,.0f} or less ({kind})", fix)


def _dropped_rows(run: RunFiles) -> Iterator[Finding]:
    dropped = run.values("dropped_rows", "collector")
    if len(dropped) and dropped[-1] > _SHARE * max(run.env_step, 1):
        seen = f"{dropped[-1]:,.0f} rows were dropped unused, of about {run.env_step:,}"
        fix = "a larger policy.collect.n_sample, fewer collectors, or more learners: updates do not keep up"
        yield Finding("warning", "dropped rows", seen, f"less than {_SHARE:.0%}", fix)


def _slow_updates(run: RunFiles) -> Iterator[Finding]:
    subject = run.subject
    asked = subject.updates_per_collection / subject.rows_per_collection
    warmup = max(subject.number("policy.random_collect_size"), subject.number("policy.learn.batch_size"), 0)
    steps, is_alone = run.env_step - warmup, run.result.get("mode", "serial").startswith("serial")
    if subject.on_policy or is_alone or run.train_iter == 0 or not steps * asked > _MIN_UPDATES:
        return
    share = run.train_iter / (steps * asked)
    if share < _SLOW:
        seen = f"{run.train_iter:,} updates in {run.env_step:,} env steps, {share:.0%} of what the config asks for"
        fix = "fewer collectors, a smaller policy.learn.batch_size, or more learners"
        yield Finding("warning", "updates", seen, f"{steps * asked:,.0f} updates", fix)


def _evaluation_time(run: RunFiles) -> Iterator[Finding]:
    spent = run.values("evaluate_time", "evaluator").sum()
    whole = max((float(line["time_s"]) for line in run.lines), default=0.0)
    if run.result:
        spent, whole = run.result["eval_duration_s"], run.result["duration_s"]
    if whole > 20 and run.train_iter > _MIN_UPDATES and spent > _EVAL_SHARE * whole:
        every = run.subject.number("policy.eval.evaluator.eval_freq")
        seen = f"evaluations took {spent:,.0f} of {whole:,.0f} s, {spent / whole:.0%}"
        more = "" if math.isnan(every) else f"policy.eval.evaluator.eval_freq={5 * every:.0f}, or "
        yield Finding("warning", "evaluation time", seen, "a small share", f"{more}fewer env.n_evaluator_episode")


def _rare_evaluation(run: RunFiles) -> Iterator[Finding]:
    count, every = len(run.evaluations), run.subject.number("policy.eval.evaluator.eval_freq")
    if run.result and not run.is_solved and every > run.train_iter > _MIN_UPDATES and count <= 3:
        seen = f"{count} evaluations in {run.train_iter:,} updates: one follows every {every:,.0f}"
        fix = f"policy.eval.evaluator.eval_freq={max(run.train_iter // 10, 1)}"
        yield Finding("warning", "evaluation", seen, "several, of which the best model is kept", fix)


def _large_updates(run: RunFiles) -> Iterator[Finding]:
    for name, bound in (("clip_fraction", _CLIPPED), ("approx_kl", _LARGE_KL)):
        values = run.values(name)
        late = values[len(values) // 2 :]
        if len(values) >= _FEW_REPORTS and late.mean() > bound:
            seen = f"{name} averages {late.mean():.2g} in the second half"
            fix = "a smaller learning rate, or fewer policy.learn.epoch_per_collect"
            yield Finding("warning", "large updates", seen, f"{bound:g} or less", fix)
            return


def _temperature(run: RunFiles) -> Iterator[Finding]:
    alpha = run.values("alpha")
    if len(alpha) >= _FEW_REPORTS and alpha[-1] > _LARGE_ALPHA and alpha[-1] > _LARGE_ALPHA * alpha[0]:
        seen = f"alpha, the weight of the entropy, grew from {alpha[0]:.2g} to {alpha[-1]:.3g}"
        fix = "a lower policy.learn.target_entropy, a smaller learning rate of alpha, or alpha fixed"
        yield Finding("warning", "entropy", seen, "a weight that settles below the rewards", fix)


CHECKS: tuple[Check, ...] = (
    _state,
    _no_update,
    _nonfinite,
    _constant_loss,
    _no_episode,
    _dropped_episodes,
    _saturated_values,
    _entropy,
    _temperature,
    _large_updates,
    _policy_lag,
    _dropped_rows,
    _slow_updates,
    _evaluation_constant,
    _no_progress,
    _lost_gain,
    _rare_evaluation,
    _evaluation_time,
)
