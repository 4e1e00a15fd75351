"""Say which patterns of collecting, of gradients and of updates exclude each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ding_like.errors import ConfigError

_LIMITS = ("fraction_workers", "fraction_samples")


def check_patterns(
    *,
    col_execution: str,
    col_communication: str,
    grad_execution: str,
    grad_communication: str,
    limits: Mapping[str, float],
    max_policy_lag: int | None = None,
    decentralized: bool = False,
    is_on_policy: bool = False,
    has_buffer: bool = False,
    collects_episodes: bool = False,
) -> None:
    """Raise ConfigError, with every reason, for what cannot be together.

    `limits` are "fraction_workers", after which a round ends, and "fraction_samples", the least that the others have
    collected then.
    """
    faults = [
        *_faults_of_words(col_communication=col_communication, grad_communication=grad_communication),
        *_faults_of_limits(limits, col_execution, col_communication),
    ]
    if col_communication == "asynchronous" and max_policy_lag == 0:
        faults.append("asynchronous rows are older than an update almost always: max_policy_lag=0 would drop them")
    if decentralized and grad_execution == "Central":
        faults.append("decentralised updates are made by several gradient workers together, and gradients are central")
    if decentralized and grad_communication == "asynchronous":
        faults.append("asynchronous gradients are not those of one step, which decentralised updates take together")
    if is_on_policy and has_buffer:
        faults.append("rows of an on-policy policy are used once, and a replay buffer would use them again")
    if collects_episodes and any(limit < 1 for limit in limits.values()):
        faults.append("whole episodes are never cut, so that limits below 1 would end no round")
    if faults:
        raise ConfigError(f"this scheme cannot be: {'; '.join(faults)}.")


def _faults_of_words(**words: str) -> Iterator[str]:
    for name, word in words.items():
        if word not in ("synchronous", "asynchronous"):
            yield f"{name} is {word!r}, expected 'synchronous' or 'asynchronous'"


def _faults_of_limits(limits: Mapping[str, float], col_execution: str, col_communication: str) -> Iterator[str]:
    unknown = sorted(set(limits) - set(_LIMITS))
    if unknown:
        yield f"a round has no limit {', '.join(unknown)}; there are {' and '.join(_LIMITS)}"
    outside = [name for name in _LIMITS if not 0 < limits.get(name, 1.0) <= 1]
    for name in outside:
        yield f"{name} is {limits[name]}, expected more than 0, at most 1"
    below = [name for name in _LIMITS if limits.get(name, 1.0) < 1]
    if not below or outside:
        return
    if col_execution == "Central":
        yield f"{below[0]}={limits[below[0]]} ends a round of several collectors, and collection is central"
    elif col_communication == "asynchronous":
        yield f"{below[0]}={limits[below[0]]} ends a round, and asynchronous collection has none"
    elif len(below) == 1:
        other = _LIMITS[1 - _LIMITS.index(below[0])]
        yield f"{below[0]}={limits[below[0]]} ends no round while {other} is 1: set it below 1, too"
