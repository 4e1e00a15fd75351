"""Policy together with the version of the weights that it acts with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ding_like.comm.channels import Version, WeightReader, Weights
from ding_like.comm.flat_state import unflatten_state
from ding_like.comm.local import NewestWeights
from ding_like.comm.weights.encode import Kind, check_alike, decode, kinds_of
from ding_like.comm.weights.extract import state_of
from ding_like.errors import CommError
from ding_like.pipeline.statistics import ENV_WRAPPERS, Statistics
from ding_like.policy import Policy
from ding_like.worker.collector.stop_rule import whole_number

# Of a policy as it was made: every learner's attempt publishes later ones.
UNTRAINED = Version(0, 0)


class PolicyWeights:
    """Policy with the version of the weights that it acts with; roles of one process may share both.

    Weights come from `reader`, or by `put` from any thread, which loads them while the policy is not `in_use`. Without
    a reader the policy is shared with the learner that trains it: nothing is loaded. `statistics` are those of the
    envs' wrappers that came with the weights; `on_statistics` is called with them.
    """

    def __init__(
        self,
        policy: Policy,
        reader: WeightReader | None = None,
        *,
        policy_id: str = "policy",
        on_statistics: Callable[[Statistics], None] | None = None,
    ) -> None:
        self.policy = policy
        self.policy_id = policy_id
        self.statistics: Statistics = {}
        self.version = UNTRAINED
        self._on_statistics = on_statistics
        self._reader = reader
        self._busy = threading.Lock()  # held while the policy is in use, or weights that were put are loaded
        self._kinds: dict[str, Kind] | None = None  # of the policy's tensors

    @property
    def is_shared(self) -> bool:
        """Whether the policy is the learner's own."""
        return self._reader is None

    def take_newest(self) -> None:
        """Load the newest weights if they are newer than those that are loaded."""
        if self._reader is not None:
            newest = self._reader.newest(self.policy_id, newer_than=self.version)
            if newest is not None:
                self.take(newest)

    def take_asked(self) -> None:
        """Load the weights that the reader gives, older ones as well: an evaluation plays those asked for."""
        asked = None if self._reader is None else self._reader.newest(self.policy_id)
        if asked is not None:
            self.take(asked)

    def take(self, weights: Weights) -> None:
        """Load weights, whichever they are."""
        state = unflatten_state(weights.state)
        self.statistics = state.pop(ENV_WRAPPERS, {})
        self.policy.collect_mode.load_state_dict(state)
        self.version = weights.version
        if self._on_statistics is not None:
            self._on_statistics(self.statistics)

    # --- weights that are put, where the reader is NewestWeights

    def put(self, given: Any) -> None:  # Any: see `weights_of`
        """Take weights, unless there are newer ones. Raises CommError for weights that do not fit the policy."""
        assert isinstance(self._reader, NewestWeights), "weights come from elsewhere"
        if self._kinds is None:
            self._kinds = kinds_of(state_of(self.policy.collect_mode))
        weights = weights_of(given, self._kinds)
        if self._reader.newest(weights.policy_id, newer_than=weights.version) is None:
            self._reader.put(weights)
        if self._busy.acquire(blocking=False):  # else they are loaded before the policy's next use
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
        """Use another policy, with the newest weights that came for the one before. Raises CommError if none fit."""
        with self._busy:
            self.policy, self.version, self._kinds = policy, UNTRAINED, None
            self.take_newest()

    def use_statistics(self, use: Callable[[Statistics], None]) -> None:
        """Call `use` with the statistics that came with the weights, now and with all that follow."""
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
    elif isinstance(given, np.ndarray):
        weights = decode(given)
    else:
        raise CommError(
            f"a worker was given a {type(given).__name__} as weights; expected a dict of version and weights."
        )
    own = {name: each for name, each in weights.state.items() if not name.startswith(f"{ENV_WRAPPERS}/")}
    check_alike(expected, kinds_of(own))
    return weights
