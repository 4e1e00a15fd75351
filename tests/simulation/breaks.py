"""Take fixes out again, to see that the simulation finds what they mend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ding_like.pipeline.parallel.comm_learner import FlaskFileSystemLearner
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.parallel.core.ledger import OnPolicyLedger
from tests.simulation.patches import Patches


def reuse_the_attempt(patches: Patches) -> None:
    """Let a learner's later attempts publish through what was made for its first, which is over."""

    def make(start: Any) -> Any:
        def wrapped(learner: FlaskFileSystemLearner, task_info: Any) -> None:
            start(learner, task_info)
            first = learner.__dict__.setdefault("first_publisher", learner._publisher)
            if first is not learner._publisher and learner._publisher is not None:
                learner._publisher.abandon(timeout_s=1.0)
                learner._publisher = first

        return wrapped

    patches.wrap(FlaskFileSystemLearner, "deal_with_learner_start", make)


def forget_answers(patches: Patches) -> None:
    """Act on a message as often as it comes: the journal is off."""

    def make(once: Any) -> Any:
        return lambda run, worker_id, stamp, ask, **kwargs: once(run, worker_id, None, ask, **kwargs)

    patches.wrap(CoordinatorCore, "once", make)


def trust_the_version_alone(patches: Patches) -> None:
    """Take rows for fresh, on-policy, by the version of the weights that acted, of any attempt."""

    def is_wanted(book: OnPolicyLedger, entry: Any, weights: tuple[int, int], newest: Any) -> bool:
        is_newest = newest is not None and weights[1] == newest.version
        return is_newest and weights != book._learned and book.count + entry.rows <= book._batch_rows

    patches.set(OnPolicyLedger, "_is_wanted", is_wanted)
    patches.set(CoordinatorCore, "_wanted_weights", lambda run, policy_id: run.policies.get(policy_id))
    patches.set(OnPolicyLedger, "drop_waiting", lambda book: None)


# By the number of the fault that the fix mends.
BREAKS: dict[str, Callable[[Patches], None]] = {
    "1": reuse_the_attempt,
    "3": forget_answers,
    "8": trust_the_version_alone,
}


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Run a block without one of the fixes."""
    patches = Patches()
    try:
        if name is not None:
            BREAKS[name](patches)
        yield
    finally:
        patches.undo()
