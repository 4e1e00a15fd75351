"""Keep the rows of a worker: a collector's newest segment, or all rows that a gradient worker learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ding_like.comm.channels import Order, Segment, Version
from ding_like.comm.local import BatchOnce, LocalRows
from ding_like.config import FrozenConfig, deep_merge
from ding_like.errors import ConfigError
from ding_like.pipeline.build.collect_end import segment_of
from ding_like.pipeline.build.parts import build_buffer
from ding_like.pipeline.roles.intake import Collected, Intake
from ding_like.pipeline.roles.remote_collectors import RemoteCollectors
from ding_like.pipeline.runner import row_path
from ding_like.types import Array
from ding_like.utils.seeding import make_rng

if TYPE_CHECKING:
    from ding_like.pipeline.build.factories import Algorithm, SchemeFactories

# Later than that of a policy as a collector has made it, so that even the first weights are taken.
ATTEMPT = 1


class SegmentStorage:
    """Storage of a collector's newest segment until it is taken.

    `max_size` is the most rows that are collected at a time; None: as many as are ordered.
    """

    def __init__(self, max_size: int | None = None) -> None:
        self.max_size = max_size
        self._segment: Segment | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows that are still to be taken."""
        return 0 if self._segment is None else len(self._segment.batch)

    def put(self, segment: Segment) -> Order:
        """Keep a segment, in place of one that was not taken."""
        self._segment = segment
        return Order(False, 0, 0, None)

    def order(self, *, timeout_s: float) -> Order:
        """Return that nothing is wanted: the caller of the collector gives the orders."""
        return Order(False, 0, 0, None)

    def take(self) -> Segment:
        """Return the segment, once. Raises ConfigError where there is none."""
        segment, self._segment = self._segment, None
        if segment is None:
            raise ConfigError("the storage holds no rows: collect_train_data comes first.")
        return segment

    def reset(self) -> None:
        """Drop what was not taken."""
        self._segment = None


class LearnRows:
    """Storage of a gradient worker: rows, which allow updates in the ratio of the config, and minibatches of them.

    `minibatches` divides a batch that was drawn, `priority` returns the priorities of its rows once it was learned
    from, and `version` the number of updates. `intake` takes rows of other processes; without it there is one
    collector, which counts its env steps itself.
    """

    def __init__(
        self, rows: LocalRows, *, minibatches: Callable[[Any], Iterable[Any]], priority: Callable[[], Array | None],
        version: Callable[[], int], intake: Intake | None = None, close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.rows, self.close = rows, close
        self._minibatches, self._priority, self._version, self._intake = minibatches, priority, version, intake
        self._parts: list[Collected] = []
        self.run_env_step = 0  # of all gradient workers, as was last known here

    @classmethod
    def of(cls, factories: SchemeFactories, algo: Algorithm, index: int, max_policy_lag: int | None) -> LearnRows:
        """Return the storage of gradient worker `index` in a process of its own: it begins empty."""
        cfg, policy, folder = factories.cfg, algo.policy, TemporaryDirectory(prefix="ding-like-")
        buffer = None
        if not cfg.policy.on_policy:
            own = FrozenConfig(deep_merge(cfg, {"exp_name": folder.name}))
            buffer = build_buffer(own, seed=factories.seed, rank=index, env_setting=factories.env_setting)

        def newest() -> Version:
            return Version(ATTEMPT, algo.num_updates)

        store = BatchOnce() if buffer is None else buffer
        rows = row_path(cfg, store, newest=newest, counts_rows=True, batch_size=cfg.policy.learn.batch_size)
        rng = make_rng(factories.seed, "learner", str(index), *factories.resumed)
        intake = Intake(
            rows, RemoteCollectors(), newest=newest, max_policy_lag=max_policy_lag,
            follows_episodes=buffer is not None and buffer.needs_env,
        )  # fmt: skip
        has_priorities = buffer is not None and bool(cfg.policy.priority)

        def close() -> None:
            if buffer is not None:
                buffer.close()
            folder.cleanup()

        return cls(
            rows, minibatches=lambda batch: policy.learn_mode.minibatches(batch, rng), intake=intake, close=close,
            priority=lambda: algo.priority if has_priorities else None, version=lambda: algo.num_updates,
        )  # fmt: skip

    # --- rows in

    def order_round(self) -> Order:
        """Return how many rows a round of collecting is to bring; 0: updates are behind."""
        order = self.rows.order(timeout_s=0.0)
        return order._replace(env_step=max(order.env_step, self.run_env_step))

    def insert_data_slice(self, data: Any, info: Mapping[str, Any]) -> Mapping[str, Array]:
        """Take the rows that one collector returned; `before_gradients` stores those of a round together.

        Returns what the envs' wrappers observed, by flat name.
        """
        segment = segment_of(data, dict(info))
        self._parts.append(Collected(info["Worker"], segment, info["CameS"], info["Asked"]))
        return segment.observed

    def before_gradients(self) -> None:
        """Store the rows that came."""
        parts, self._parts = self._parts, []
        if self._intake is not None:
            self._intake.put(parts, self.rows.order(timeout_s=0.0))
        else:
            for part in parts:
                self.rows.put(part.segment)

    def insert_random(self) -> int:
        """Store the rows that came as those of random actions, which allow no updates; return how many there are."""
        parts, self._parts = self._parts, []
        assert self._intake is not None, "one collector's random rows are collected by its owner"
        return self._intake.put_random(parts)

    # --- minibatches out

    def generate_batches(self, num_mini_batch: int, mini_batch_size: int, num_epochs: int) -> Iterator[Any]:
        """Yield minibatches of the batches that are allowed by now, and None after the last one of each batch.

        The policy's config says how large they are.
        """
        while (batch := self.rows.next(timeout_s=0.0)) is not None:
            yield from self._minibatches(batch)
            self.rows.feedback(self._version(), priority=self._priority(), info=dict)
            yield None
