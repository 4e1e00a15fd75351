"""Hold a worker's policy, whose weights others bring at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ding_like.comm.channels import Version, Weights
from ding_like.comm.weights.encode import Encoded, Kind, check_alike, decode, kinds_of
from ding_like.comm.weights.extract import state_of
from ding_like.comm.weights.newest import NewestWeights
from ding_like.errors import CommError
from ding_like.pipeline.roles.loaded_weights import UNTRAINED, LoadedWeights
from ding_like.pipeline.statistics import ENV_WRAPPERS, Statistics
from ding_like.policy import Policy
from ding_like.worker.collector.stop_rule import whole_number


class HeldWeights(LoadedWeights):
    """Be a policy with the weights that were put last, by any thread: they are loaded while it is not in use."""

    def __init__(self, policy: Policy) -> None:
        self._received = NewestWeights()
        self._busy = threading.Lock()  # held while the policy is in use, or its weights are loaded
        super().__init__(policy, self._received)
        self._kinds = kinds_of(state_of(policy.collect_mode))

    def put(self, given: Any) -> None:  # Any: see `weights_of`
        """Take weights, unless there are newer ones. Raises CommError for weights that do not fit the policy."""
        weights = weights_of(given, self._kinds)
        if self._received.newest(weights.policy_id, newer_than=weights.version) is None:
            self._received.put(weights)
        if self._busy.acquire(blocking=False):  # else whoever uses the policy loads them before the next use
            try:
                self.take_newest()
            finally:
                self._busy.release()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Use the policy with the newest weights: those that are put meanwhile are loaded when it is used next."""
        with self._busy:
            self.take_newest()
            yield

    def use_policy(self, policy: Policy) -> None:
        """Hold another policy, with the newest weights that came for the one before. Raises CommError if none fit."""
        with self._busy:
            self.policy, self.version = policy, UNTRAINED
            self._kinds = kinds_of(state_of(policy.collect_mode))
            self.take_newest()

    def tell_statistics(self, use: Callable[[Statistics], None]) -> None:
        """Tell `use` of the statistics that came with the weights, now and with all that follow."""
        self._on_statistics = use
        use(self.statistics)


def weights_of(given: Any, expected: Mapping[str, Kind]) -> Weights:  # Any: of three kinds
    """Return weights that a worker is given: what `encode` made, Weights, or {"version": int, "weights": state dict}.

    A state dict is the whole state of a policy's collect mode, nested or by flat names. Raises CommError that names the
    first tensor which is not `expected` (shapes and dtypes by flat name), and for anything else.
    """
    if isinstance(given, Mapping):
        if set(given) != {"version", "weights"} or not isinstance(given["weights"], Mapping):
            raise CommError(f"weights are a dict of {sorted(given)}; expected 'version' and 'weights', a state dict.")
        state = given["weights"]
        flat = dict(state) if expected.keys() <= state.keys() else state_of(state)
        # Attempt 1: newer than a policy as it was made, which is version 0 of attempt 0.
        weights = Weights("policy", Version(1, whole_number("version", given["version"], least=0)), flat)
    elif isinstance(given, Weights):
        weights = given
    elif isinstance(given, tuple) and len(given) == len(Encoded._fields):
        weights = decode(Encoded(*given))
    else:
        raise CommError(
            f"a worker was given a {type(given).__name__} as weights; expected a dict of version and weights."
        )
    own = {name: each for name, each in weights.state.items() if not name.startswith(f"{ENV_WRAPPERS}/")}
    check_alike(expected, kinds_of(own))
    return weights
