"""Protocols between the processes of a run: what travels, and by which calls, whatever the transport.

A collector puts segments of rows and gets the next request; a learner takes batches and publishes weights. `comm/rest/`
carries them over HTTP and files, `comm/zmq/` over ZeroMQ. Each transport passes the contract suite of every protocol
that it implements (`tests/contracts/test_channels.py`).

Units are in names: `rows` of training data, `env_steps` that were taken, `updates` of the learner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeGuard

from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.errors import CommError
from ding_like.types import Array, Config

if TYPE_CHECKING:  # processes that step envs import this module, and need no torch
    import torch

# A list holds rows that do not stack, of any kind that a policy makes: only a transport in one process carries those.
Rows: TypeAlias = "TransitionBatch | list[Any]"
# What a learner trains on: rows, or windows of them.
Batch: TypeAlias = "Rows | SequenceBatch"


class Version(NamedTuple):
    """Version of published weights; later ones compare greater.

    A learner that is restarted makes another `attempt`, and its updates may begin again from an earlier number.
    """

    attempt: int
    update: int  # updates that the learner had taken


class Weights(NamedTuple):
    """Weights of an actor: the whole state of a policy's collect mode."""

    policy_id: str
    version: Version
    state: Mapping[str, torch.Tensor]  # as `tensors.flatten_state` makes it: "model/encoder.weight" say


class Receipt(NamedTuple):
    """Receipt of a message: the members that received it, those that failed to, and those that were not tried."""

    delivered: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Segment:
    """Rows of one collector, with the version of the weights that acted and the env steps that were taken."""

    batch: Rows
    version: Version  # of the weights that acted
    env_steps: int  # that were taken for them, dropped ones included
    # What was logged of them, as plain JSON.
    stats: Mapping[str, Any] = field(default_factory=dict)
    # What the env's wrappers (obs_norm, reward_norm) observed since the segment before: arrays by flat name, which the
    # learner merges.
    observed: Mapping[str, Array] = field(default_factory=dict)


class CollectRequest(NamedTuple):
    """Request of rows to a collector, or to finish."""

    finish: bool  # end the task
    rows: int  # that may be collected now; 0: ask again
    env_step: int  # of the whole run
    newest: Version | None  # weights that there are; None: none yet


class WeightPublisher(Protocol):
    """Sender of weights, used by the owner of the optimizer between two updates."""

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Send weights to the readers `to` (None: all); return at once, or wait until they have them for `wait_s`.

        Weights that are not newer than those published before are skipped. The caller may change its tensors
        afterwards. Raises CommError if nothing can be sent any more.
        """

    def close(self) -> None:
        """Send what is under way and release resources; may be called again."""


class WeightReader(Protocol):
    """Receiver of weights."""

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights of a policy, None if none newer than `newer_than` came within `timeout_s`.

        The reader does not change the tensors. Raises CommError for weights that are announced but cannot be had.
        """


class RowSink(Protocol):
    """Destination of a collector's rows, and source of its requests."""

    def put(self, segment: Segment) -> CollectRequest:
        """Send a segment, once, and return the next request. Raises CommError if it cannot be sent."""

    def order(self, *, timeout_s: float) -> CollectRequest:
        """Return the next request; wait for at most `timeout_s` while no rows are requested."""


class BatchSource(Protocol):
    """Source of a learner's batches, and destination of its reports."""

    @property
    def finished(self) -> bool:
        """Whether no batch will come any more."""

    @property
    def env_step(self) -> int:
        """Env steps of the run, as far as is known here."""

    def next(self, *, timeout_s: float) -> Batch | None:
        """Return the next batch, with a column `weight` where rows are drawn by priority; None: none came in time.

        Raises what went wrong on its way.
        """

    def feedback(self, train_iter: int, *, priority: Array | None, info: Callable[[], Config]) -> None:
        """Report an update with the batch that was returned last: its rows' priorities [B], and what was logged.

        `info` is called when a report goes out, which not every update's does: what it reads costs a wait for the
        device.
        """

    def close(self) -> None:
        """Report what is left and release resources; may be called again."""


MAX_NUMBER = 2**53  # JSON's numbers hold all whole numbers below
MAX_TEXT = 4_000  # characters

Head = Mapping[str, Any]  # Any: of JSON


def is_count(value: object) -> TypeGuard[int]:
    """Tell whether a value is a whole number, 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_NUMBER


def short(value: object) -> str:
    """Return a value as an error shows it, cut to 80 characters."""
    return repr(value)[:80]


def count_of(head: Head, key: str) -> int:
    """Return a whole number, 0 or more, in a head."""
    value = head.get(key)
    if not is_count(value):
        raise CommError(f"'{key}' is {short(value)}; expected a whole number, 0 or more.")
    return value


def text_of(head: Head, key: str) -> str:
    """Return a text in a head, cut to MAX_TEXT characters."""
    value = head.get(key)
    if not isinstance(value, str):
        raise CommError(f"'{key}' is {short(value)}; expected a text.")
    return value[:MAX_TEXT]


def name_of(head: Head, key: str, *, most: int, may_be_empty: bool = False) -> str:
    """Return a name of up to `most` characters in a head."""
    value = head.get(key)
    if not isinstance(value, str) or len(value) > most or not (value or may_be_empty):
        raise CommError(f"'{key}' is {short(value)}; expected up to {most} characters.")
    return value


def plain_of(head: Head, key: str) -> dict[str, Any]:
    """Return a JSON object in a head."""
    value = head.get(key)
    if not isinstance(value, dict):
        raise CommError(f"'{key}' is {short(value)}; expected a JSON object.")
    return value


def is_version(value: object) -> TypeGuard[Sequence[int]]:
    """Tell whether a value is [attempt, update], the two counts that a `Version` has."""
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_count, value))


def version_of(head: Head, key: str) -> Version:
    """Return the version of weights in a head."""
    value = head.get(key)
    if not is_version(value):
        raise CommError(f"'{key}' is {short(value)}; expected [attempt, update], two counts.")
    return Version(*value)
