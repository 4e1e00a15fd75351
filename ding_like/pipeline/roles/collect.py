"""Collect: orders in, segments out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space

from ding_like.comm.channels import Order, RowSink, Segment
from ding_like.errors import ConfigError
from ding_like.pipeline.roles.policy_weights import UNTRAINED, PolicyWeights
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import Array, CollectMode, Setting
from ding_like.worker import SampleSerialCollector
from ding_like.worker.collector.stop_rule import StopRule

_WAIT_S = 1.0  # for rows that may be collected, before it is asked again


class CollectRole:
    """Collect as many rows as are ordered, each segment with the newest weights that there are.

    Envs, open episodes and weights stay from order to order. `settings` returns what the policy is told for an order,
    by default what its command mode says of the order's env step, and `stats` what a segment reports. `observed`
    returns what the envs' wrappers saw since it was called last. `after_segment` is called once a segment is put. For
    the run's first `random_steps` env steps actions are random, drawn from `action_space`.
    """

    def __init__(
        self,
        collector: SampleSerialCollector,
        weights: PolicyWeights,
        *,
        sink: RowSink,
        random_steps: int = 0,
        action_space: Space[Any] | None = None,  # a space is generic in what it samples, which differs from env to env
        settings: Callable[[Order], Setting] | None = None,
        stats: Callable[[Setting], Mapping[str, Any]] | None = None,
        observed: Callable[[], Mapping[str, Array]] | None = None,
        after_segment: Callable[[Segment], None] | None = None,
    ) -> None:
        if random_steps > 0 and action_space is None:
            raise ConfigError(f"{random_steps} random steps need the action space that they are drawn from.")
        self._collector = collector
        self._weights = weights
        self.update_policy: Callable[[], object] = weights.take_newest  # called before each segment
        self.sink = sink
        self.random_steps = random_steps
        self._action_space = action_space
        self._settings = settings or self._command
        self._stats = stats
        self._observed = observed
        self._after_segment = after_segment
        self._acts_at_random = False
        self.setting: Setting = {}  # what was said last

    def run(
        self,
        *,
        collect: Callable[[Order], Order] | None = None,
        is_done: Callable[[], bool] = lambda: False,
        wait_s: float = _WAIT_S,
    ) -> int:
        """Collect until an order says that it is enough, or `is_done`; return the number of segments.

        `collect` stands in place of the role's own. While there are no rows to collect, `is_done` is asked every
        `wait_s`.
        """
        collect, num_segments = collect or self.collect, 0
        order = self.sink.order(timeout_s=wait_s)
        while not order.finish and not is_done():
            if order.rows > 0:
                order = collect(order)
                num_segments += 1
            else:
                order = self.sink.order(timeout_s=wait_s)
        return num_segments

    def collect(self, order: Order, *, stop: StopRule | None = None) -> Order:
        """Collect as many rows as an order wants, put them, and return the next order.

        If `stop` is met before there are as many, the segment has those that can be made by then.
        """
        self.update_policy()
        version = (order.newest or UNTRAINED) if self._weights.is_shared else self._weights.version
        self._act_at_random(order.env_step < self.random_steps)
        collector, self.setting = self._collector, self._settings(order)
        first_step = collector.envstep
        # A collector of one's own need not know of stop rules.
        by_rule: dict[str, StopRule] = {} if stop is None else {"stop": stop}
        batch = collector.collect_rows(order.rows, train_iter=version.update, policy_kwargs=self.setting, **by_rule)
        segment = Segment(
            batch,
            version,
            collector.envstep - first_step,
            {} if self._stats is None else self._stats(self.setting),
            {} if self._observed is None else self._observed(),
        )
        following = self.sink.put(segment)
        if self._after_segment is not None:
            self._after_segment(segment)
        return following

    @property
    def mode(self) -> CollectMode:
        """Return the collect mode of the policy, which acts unless actions are random."""
        return self._weights.policy.collect_mode

    def use_policy(self) -> None:
        """Act with the policy that the weights hold now; open episodes go on."""
        self._collector.reset_policy(self.mode)
        self._acts_at_random = False

    def _command(self, order: Order) -> Setting:
        setting: Setting = self._weights.policy.command_mode.get_setting_collect({"envstep": order.env_step})
        return setting

    def _act_at_random(self, at_random: bool) -> None:
        if at_random == self._acts_at_random:
            return
        mode = self.mode
        if at_random and self._action_space is not None:
            mode = random_collect_mode(mode, self._action_space)
        self._collector.reset_policy(mode)
        self._acts_at_random = at_random
