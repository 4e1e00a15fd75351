"""Check what workers report against what they can have done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ding_like.comm.rest.wire import MAX_COUNT
from ding_like.errors import SchemaError

MAX_RETURN = 1e30  # of an episode: sums and squares of many stay finite
# Env steps of one lane in a second: no env and policy take them as fast.
_STEPS_PER_LANE_S = 20_000
# Beside those by time: after a restart of the coordinator, whose clock restarts, what was collected before it comes.
_SLACK_PER_LANE, _SLACK_SEGMENTS = 10_000, 100
_SLACK_S = 5.0  # by which the duration of an evaluation may exceed its lease: clocks differ, and processes are paused
_MAX_STATS = 64  # numbers that a worker shows beside its work


def most_env_steps(*, lanes: int, segment_steps: int, present_s: float) -> float:
    """Return how many env steps a worker can have taken in the time that it has been there."""
    return lanes * (_STEPS_PER_LANE_S * present_s + _SLACK_PER_LANE) + _SLACK_SEGMENTS * segment_steps


def check_evaluation(result: Mapping[str, Any], *, n_episode: int, version: int | None, leased_s: float) -> None:
    """Raise SchemaError unless a result is that of an evaluation of `n_episode` episodes with these weights."""
    _check_numbers(result, "returns", -MAX_RETURN, MAX_RETURN, count=n_episode)
    _check_numbers(result, "lengths", 0, MAX_COUNT, count=n_episode)
    _check_metrics("metrics", result)
    found = result.get("version")
    if not _is_number(found, 0, MAX_COUNT) or (version is not None and found != version):
        raise SchemaError(f"an evaluation is of version {found!r:.80}; expected {version}.")
    if not _is_number(result.get("duration_s"), 0.0, leased_s + _SLACK_S):
        raise SchemaError(
            f"an evaluation took {result.get('duration_s')!r:.80} s (duration_s); it was given {leased_s:.1f} s ago."
        )


def check_learned(result: Mapping[str, Any]) -> None:
    """Raise SchemaError unless a learner's result has numbers where they are expected."""
    _check_numbers(result, "eval_value_raw", -MAX_RETURN, MAX_RETURN)
    _check_numbers(result, "eval_lengths", 0, MAX_COUNT)
    _check_metrics("eval_metrics", result)
    for name in ("eval_value", "train_iter", "last_iter", "judge_s", "train_s"):
        least = -MAX_RETURN if name == "eval_value" else 0
        if name in result and not _is_number(result[name], least, MAX_RETURN):
            raise SchemaError(f"the learner's result has {name} {result[name]!r:.80}; expected a number.")


def _check_numbers(
    result: Mapping[str, Any], name: str, least: float, most: float, *, count: int | None = None
) -> None:
    """Raise SchemaError unless `result[name]`, a list, has numbers from `least` to `most`, `count` of them if given."""
    values = result.get(name, [])
    is_list = isinstance(values, (list, tuple)) and count in (None, len(values))
    if not is_list or not all(_is_number(value, least, most) for value in values):
        of_so_many = "" if count is None else f" of {count} episodes"
        raise SchemaError(
            f"a result{of_so_many} has {name} {values!r:.80}; expected numbers from {least:g} to {most:g}."
        )


def _check_metrics(name: str, result: Mapping[str, Any]) -> None:
    """Raise SchemaError unless the metrics of envs, which a result may have under `name`, are numbers by name."""
    metrics = result.get(name, {})
    is_short = isinstance(metrics, Mapping) and len(metrics) <= _MAX_STATS
    if not is_short or not all(
        isinstance(key, str) and _is_number(value, -MAX_RETURN, MAX_RETURN) for key, value in metrics.items()
    ):
        raise SchemaError(f"an evaluation has {name} {metrics!r:.80}; expected up to {_MAX_STATS} numbers by name.")


def bounded_stats(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a worker's numbers is shown: so many, and those of which means can be taken."""
    kept: dict[str, Any] = {}
    for name, value in stats.items():
        if len(kept) < _MAX_STATS and (
            not isinstance(value, (int, float)) or _is_number(value, -MAX_RETURN, MAX_RETURN)
        ):
            kept[name] = value
    return kept


def _is_number(value: Any, least: float, most: float) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Not math.isfinite: an int of 400 digits has no float.
    return is_number and least <= value <= most and abs(value) != math.inf
