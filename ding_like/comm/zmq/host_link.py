"""Stay in touch with a run's driver from another machine, on behalf of all that works there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ding_like.comm.zmq.data_link import DataLink
from ding_like.comm.zmq.sockets import Poller, Wake
from ding_like.errors import CommError

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

MAX_HOSTS = 99  # of a run: the numbers that are drawn from
_TRIES = 20  # at a number that no other machine has
_TIMEOUT_S = 2.0


class HostLink(DataLink):
    """Be a machine that has joined a run; `number` tells it from others, and says how those that work there are named.

    One thread uses it; any may call `wake`, upon which `wait_until` looks again.
    """

    role: ClassVar[str] = "host"

    def __init__(self, endpoint: str, *, number: int, keys: SeedKeys | None, patience_s: float) -> None:
        name = f"host{number}"
        # Later than that of every machine that has had the number before.
        run_id = int(time.time())
        super().__init__(endpoint, name=name, run_id=run_id, keys=keys, timeout_s=_TIMEOUT_S, patience_s=patience_s)
        self.number = number
        self._wake = Wake()
        self._poller = Poller(self._socket, self._wake)

    @property
    def is_away(self) -> bool:
        """Tell whether the driver has left unanswered what was said again."""
        return self._urged_s is not None and time.monotonic() - self._urged_s >= 2 * self._timeout_s

    def be_patient_for(self, seconds: float) -> None:
        """Have a driver that is silent held to be lost after so long from now on."""
        self._patience_s = seconds

    def wait_until(self, is_due: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until it is due, for at most `timeout_s`; tell whether it is. It is looked at whenever something comes.

        Raises CommError where the driver is held to be lost.
        """
        return self._wait_for(is_due, timeout_s)

    def is_over(self) -> bool:
        """Tell whether the driver had said, by what was taken in last, that nothing is wanted any more."""
        return self._is_stopped

    def wake(self) -> None:
        """Have `wait_until` look again."""
        self._wake.wake()

    def close(self) -> None:
        """Close the socket; may be called again."""
        super().close()
        self._wake.close()


def join_as_host(endpoint: str, *, keys: SeedKeys | None, patience_s: float) -> HostLink:
    """Join the run whose driver is at an endpoint, under a number that no other machine has.

    Raises CommError where the driver refuses, and if it does not answer within `patience_s`.
    """
    for left in reversed(range(_TRIES)):
        link = HostLink(endpoint, number=1 + secrets.randbelow(MAX_HOSTS), keys=keys, patience_s=patience_s)
        try:
            link.join()
            return link
        except CommError:
            link.close()
            # One that is not refused has heard nothing: another number would not be answered either.
            if not link.was_refused or not left:
                raise
        except BaseException:
            link.close()
            raise
    raise AssertionError("the last try returns or raises")
