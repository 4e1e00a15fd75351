"""Runner with central inference: actors bring the rows, and this process learns from them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ding_like.comm.channels import Version
from ding_like.comm.workers.processes import Processes
from ding_like.comm.zmq.rows import Arrived, RowServer, Source
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.errors import CommError, DingError
from ding_like.pipeline.factories import LearnerSide
from ding_like.pipeline.remote_collectors import Collected, RemoteCollectors, shares
from ding_like.pipeline.seed.settings import SeedSettings
from ding_like.pipeline.statistics import flat_names
from ding_like.pipeline.training_loop import RunnerLostError
from ding_like.types import Setting, State
from ding_like.utils.timing import RateLimiter

_LOOK_S = 0.2  # between two checks of the workers, and of whether the run is to end
_LEAVE_S = 0.5  # that a round may still take then
_MOST = 2.0**53  # numbers beyond it, which a source sends, are ignored
_NO_ORDER = (-1, -1)
_OF_SERVERS = {"mean_batch", "p50_ms", "p99_ms", "queue"}

_logger = logging.getLogger(__name__)


class SeedRunner:
    """Runner that stores the rows that actors bring, learns from them, and sends the weights to the servers.

    `rows` takes rows in, `weights` sends weights out, `workers` are the processes of this machine; `close` ends all.
    An actor has orders for up to `credit` segments, and none while updates are behind. With `comm` "sync" each turn is
    a round of rows that all actors share, computed with the newest weights.
    """

    def __init__(
        self,
        side: LearnerSide,
        settings: SeedSettings,
        *,
        rows: RowServer,
        weights: Broadcaster,
        workers: Processes,
        close: Callable[[], None] = lambda: None,
        is_leaving: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._side, self._settings = side, settings
        self._rows, self._weights, self._workers = rows, weights, workers
        self._is_leaving, self._clock = is_leaving, clock
        self.close = close  # may be called again
        self._receiver = side.receiver
        self._segment_rows = side.segment_rows(settings.segment_rows, max(settings.num_actors, 1))
        self._beat = RateLimiter(settings.max_train_frequency, clock)
        self._first: Version | None = None  # that was published in this stretch of the run
        self._published: Version | None = None
        self._random_rows = side.random_rows  # that are still to be collected
        self._waited_s = 0.0  # for rows that were asked for, since some came
        self._report: RemoteCollectors = self._receiver.report
        self._report.beside = self._numbers

    @property
    def setting(self) -> Setting:
        """The settings that collectors were sent last."""
        return self._report.setting

    # --- iterations

    def start(self) -> None:
        """Send the first weights, and collect the rows of random actions."""
        with _or_lost():
            self.publish()
            self._use_statistics()  # those of a saved point: actors have none of their own
            while self._random_rows > 0 and not self._is_leaving():
                # Actors act at random at a run's first env steps.
                came = self._round(self._random_rows, env_step=0, most=self._side.random_share)
                self._random_rows -= self._receiver.put_random([_collected(each) for each in came])
                self._acknowledge(came)
            if self._settings.comm == "async":
                self._give()

    def step(self) -> None:
        """Put the rows that came, or a whole round of them, and learn from what there is."""
        with _or_lost():
            if self._settings.comm == "sync":
                self._take_round()
            else:
                self._take_arrived()

    def _take_round(self) -> None:
        order = self._side.rows.order()
        if order.rows:
            self.publish()
            began_s = self._clock()
            came = self._round(order.rows, env_step=order.env_step)
            self._report.note_round(self._clock() - began_s)
            self._receiver.put([_collected(each) for each in came], order)
            self._acknowledge(came)
        else:
            self._arrived(min(_LOOK_S, self._beat.wait_s))  # no rows were ordered: updates are behind
        self._learn()

    def _take_arrived(self) -> None:
        order = self._side.rows.order()
        for arrived in self._arrived(min(_LOOK_S, self._beat.wait_s or _LOOK_S)):
            self._receiver.put([_collected(arrived)], order)
            self._acknowledge([arrived])
        self._learn()
        if self._weights.is_due:
            self.publish()
        self._give()

    def _learn(self) -> None:
        """Take the updates that are allowed by now."""
        while self._beat.is_due and not self._is_leaving() and self._side.rows.train_next(self._side.parts.learner):
            self._beat.record()

    def publish(self) -> None:
        """Send the learner's weights to the servers, unless they were sent."""
        newest = self._receiver.newest()
        if newest != self._published:
            self._weights.publish(self._side.acting(statistics={}))
            self._published, self._first = newest, self._first or newest

    # --- rows

    def _arrived(self, timeout_s: float, awaited: Sequence[str] | None = None) -> Sequence[Arrived]:
        """Return what came in time. Raises RunnerLostError where workers are lost, or nothing came for too long."""
        self._check()
        began_s = self._clock()
        came = self._rows.take(timeout_s)
        for source, text in self._rows.errors():  # the supervisor of this machine decides on its own
            _logger.warning("%s: %s", source, text.partition("\n")[0])
            _logger.debug("%s: %s", source, text)
        # Only what is waited here counts: an evaluation between two looks holds up the driver, and no actor.
        self._waited_s += self._clock() - began_s
        failure = self._settings.failure
        if awaited is None:
            actors = self._actors().items()
            awaited = [name for name, each in actors if each.orders and not self._has_left(name, each)]
        if came or not awaited:
            self._waited_s = 0.0
        elif self._waited_s > failure.step_timeout_s + failure.start_timeout_s:  # replaced ones came to nothing
            raise RunnerLostError(
                f"{', '.join(awaited)} were asked for rows, and none have come for {self._waited_s:.0f} s: see "
                "what holds them up (an env that hangs, a server that is too slow), or raise "
                "system.seed.failure.step_timeout_s."
            )
        return came

    def _check(self) -> None:
        try:
            self._workers.check()
        except DingError as error:  # of whatever kind an actor has failed with
            raise RunnerLostError(str(error)) from error

    def _acknowledge(self, came: Sequence[Arrived]) -> None:
        """Acknowledge rows that are in the buffer, and send new statistics for the envs' wrappers."""
        for arrived in came:
            self._rows.acknowledge(arrived)
        if any(arrived.segment.observed for arrived in came):
            self._use_statistics()

    def _use_statistics(self) -> None:
        """Have the envs of all actors normalised by what is known by now, if anything is."""
        known = self._side.statistics()
        if known:
            self._rows.use_statistics(flat_names(known))

    def _actors(self) -> dict[str, Source]:
        """Return the actors that are there, in the order of their numbers."""
        found = [(name, each) for name, each in self._rows.sources().items() if each.role == "actor" and each.connected]
        return dict(sorted(found, key=lambda item: (len(item[0]), item[0])))

    def _give(self) -> None:
        """Give the actors as many orders as they may have, unless updates are behind."""
        order = self._side.rows.order()
        if order.rows and not self._is_leaving():
            for name in self._actors():
                while self._order(name, self._segment_rows, env_step=order.env_step) is not None:
                    pass  # until it has all its credit

    def _order(self, name: str, rows: int, *, env_step: int) -> tuple[int, int] | None:
        """Give an actor an order, and return its run id and the order's number; None: it takes none."""
        # A server keeps a request until it has weights as new as these: untrained ones never act.
        least = self._published if self._settings.comm == "sync" else self._first
        assert least is not None, "weights are published before the first order"
        setting = self._side.parts.policy.command_mode.get_setting_collect({"envstep": env_step})
        newest, extra = self._published, {"least": list(least), "setting": dict(setting)}
        return self._rows.give(name, rows, env_step=env_step, newest=newest, extra=extra)

    def _round(self, rows: int, *, env_step: int, most: float = math.inf) -> list[Arrived]:
        """Return what the actors that are there bring, by place: each its share, and the least that it can collect.

        The share of a lost actor is collected by the one that takes its place; where none will, it is left out. Rows of
        an earlier round, which come late, are used too. A run that is to end waits for half a second more.
        """
        present = self._present()
        asked = {
            name: max(int(min(share, most)), self._side.least_share)
            for name, share in zip(present, shares(rows, len(present)), strict=True)
            if share
        }
        given: dict[str, tuple[int, int]] = {}  # run id of the actor that has the order, and the order's number
        came: dict[str, Arrived] = {}
        late: list[Arrived] = []
        end_s = math.inf
        while self._clock() < end_s:
            sources = self._rows.sources()
            for name in [name for name in asked if name not in came]:
                if self._has_left(name, sources[name]):
                    del asked[name]
                elif sources[name].connected and given.get(name, _NO_ORDER)[0] != sources[name].run_id:
                    given[name] = self._order(name, asked[name], env_step=env_step) or _NO_ORDER
            missing = [name for name in asked if name not in came]
            if not missing:
                break
            for each in self._arrived(_LOOK_S, missing):
                if each.source in asked and given.get(each.source) == (each.run_id, each.number):
                    came[each.source] = each
                else:
                    late.append(each)
            if self._is_leaving():
                end_s = min(end_s, self._clock() + _LEAVE_S)
        return [*(came[name] for name in asked if name in came), *late]

    def _has_left(self, name: str, source: Source) -> bool:
        """Return whether an actor is gone in whose place no other one is started."""
        is_silent = self._clock() - source.heard_s > self._settings.failure.step_timeout_s
        return (is_silent or not source.connected) and not self._workers.is_expected(name)

    def _present(self) -> list[str]:
        """Return the actors that a round is shared among; wait for one where there is none."""
        while not self._is_leaving():
            if actors := [name for name, source in self._actors().items() if not self._has_left(name, source)]:
                return actors
            self._arrived(_LOOK_S)
        return []

    # --- reports

    def workers(self) -> Mapping[str, str]:
        """Return the status of inference and of the actors: rows of the run's panel."""
        self._report.keep(self._actors())
        numbers = self._inference()
        rows = {}
        if numbers:
            rows["batch"] = f"{numbers['mean_batch']:.3g} observations"
            rows["latency"] = f"{numbers['inference_p50_ms']:.3g} ms p50, {numbers['inference_p99_ms']:.3g} ms p99"
            rows["queue"] = f"{numbers['inference_queue']:.0f} requests, {self._rows.queue_depth} segments"
        return {**rows, **self._side.describe(), **self._workers.describe()}

    def _inference(self) -> dict[str, float]:
        """Return what servers and actors measured in their last second; empty before they have.

        A batch is so many observations. The latency is that of the slowest: from an actor's request to the answer, or
        where no actor has sent any, from a server's receipt on.
        """
        # A source may send anything as its numbers, and of some there are none at times.
        numbers = [
            (each.role, {key: float(value) for key, value in each.stats.items() if _is_number(value)})
            for each in self._rows.sources().values()
            if each.connected
        ]
        servers = [each for role, each in numbers if role == "server" and each.keys() >= _OF_SERVERS]
        if not servers:
            return {}
        waits = [each for role, each in numbers if role == "actor" and each.keys() >= {"p50_ms", "p99_ms"}] or servers
        return {
            "mean_batch": sum(each["mean_batch"] for each in servers) / len(servers),
            "inference_p50_ms": max(each["p50_ms"] for each in waits),
            "inference_p99_ms": max(each["p99_ms"] for each in waits),
            "inference_queue": sum(each["queue"] for each in servers),
        }

    def _numbers(self) -> Mapping[str, float]:
        """Return what goes into the metrics with the rates of all actors: each one's, and how inference fares."""
        rates = {f"envstep_per_sec/{name}": steps for name, (steps, _) in self._report.rates().items()}
        refused = {f"refused_segments/{name}": each.refused for name, each in self._rows.sources().items()}
        refused = {key: number for key, number in refused.items() if number}
        return {**self._inference(), "queue_depth": float(self._rows.queue_depth), **rates, **refused}

    # --- the rest of Runner

    def flush(self) -> None:
        """Do nothing: between two turns all that was learned is here; rows that are still to come are put after."""

    def rescue(self) -> bool:
        """Return True: the learner and its rows are all here."""
        return True

    def state_dict(self) -> State:
        """Return how much was collected and how many updates were made of it."""
        return {"rows": self._side.rows_state(), "random_rows": max(0, self._random_rows)}

    def load_state_dict(self, state: State) -> None:
        """Resume from what `state_dict` returned, with the rows of random actions that were not collected by then."""
        if state:
            self._side.rows.load_state_dict(state["rows"])
        self._random_rows = state.get("random_rows", 0)
        self.start()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _MOST


def _collected(arrived: Arrived) -> Collected:
    return Collected(arrived.source, arrived.segment, arrived.came_s, arrived.asked)


@contextmanager
def _or_lost() -> Iterator[None]:
    """Raise RunnerLostError in place of an error of the channels to the workers."""
    try:
        yield
    except RunnerLostError:
        raise
    except CommError as error:
        raise RunnerLostError(str(error)) from error
