"""Make what collects without a network of its own: an actor thread's collector, whose actions servers choose."""

from __future__ import annotations

from contextlib import ExitStack

from ding_like.comm.channels import Order, Segment, Version
from ding_like.comm.zmq.inference import InferenceClient
from ding_like.comm.zmq.row_sink import ZmqRowSink
from ding_like.pipeline.build.collect_end import CollectEnd
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.policy import Policy
from ding_like.policy.remote_infer import act_remotely
from ding_like.utils.interval import Interval

_STATS_S = 1.0


def collect_end_from_afar(factories: SchemeFactories, number: int, opened: ExitStack) -> CollectEnd:
    """Return what actor thread `number` of a run collects with, its envs launched; `opened` closes it.

    Thread 1 has the seeds and the generators of a serial run's collector. `RemoteOrders` joins it to a client.
    """
    policy = factories.actor("cpu")
    envs = factories.train_envs("cpu", number, 0)
    opened.callback(envs.close)
    end = factories.algo("cpu", policy).collect_end(envs, number, 0)
    opened.callback(end.close)
    return end


class RemoteWeights(LoadedWeights):
    """Be a policy whose network is elsewhere: which version acts is known once it has."""

    def __init__(self, policy: Policy, client: InferenceClient) -> None:
        super().__init__(policy)
        self._client = client

    def acted(self, version: Version) -> Version:
        """Return the oldest version that answered since this was asked last; `version` for random actions."""
        return self._client.take_version() or version


class RemoteOrders:
    """Be a driver's orders to a collector that acts by a client: what they say besides is passed on to both.

    `role` is the collector's, which obeys them.
    """

    def __init__(self, sink: ZmqRowSink, client: InferenceClient, end: CollectEnd) -> None:
        """Connect the collector. Raises ConfigError for a policy whose network cannot be elsewhere."""
        self._sink, self._client, self._end = sink, client, end
        self._stats_due = Interval(_STATS_S)
        act_remotely(end.policy, client)
        self.role = end.connect(RemoteWeights(end.policy, client), self, after_segment=self._tell_latency)

    def put(self, segment: Segment) -> Order:
        """Hand a segment over; see `RowSink`."""
        return self._passed_on(self._sink.put(segment))

    def order(self, *, timeout_s: float) -> Order:
        """Return what is to be done next; see `RowSink`."""
        return self._passed_on(self._sink.order(timeout_s=timeout_s))

    def _tell_latency(self, _: Segment) -> None:
        if self._stats_due.pass_s():
            self._sink.send_stats(self._client.take_latency().plain())

    def _passed_on(self, order: Order) -> Order:
        least = self._sink.extra.get("least")
        if least is not None:
            self._client.least = Version(*least)
        flat = self._sink.take_statistics()
        if flat is not None:
            self._end.statistics.use_flat(flat)
        return order
