"""Keep a policy together with the version of the weights that it acts with; roles of one process may share both."""

from __future__ import annotations

from collections.abc import Callable

from ding_like.comm.channels import Version, WeightReader, Weights
from ding_like.comm.flat_state import unflatten_state
from ding_like.pipeline.statistics import ENV_WRAPPERS, Statistics
from ding_like.policy import Policy

# Of a policy as it was made: every learner's attempt publishes later ones.
UNTRAINED = Version(0, 0)


class LoadedWeights:
    """Load what a reader gives into a policy's collect mode, and remember its version.

    Without a reader the policy is shared with the learner that trains it: nothing is loaded. `statistics` are those of
    the envs' wrappers that came with the weights, and `on_statistics` is told of them.
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
        self.statistics: Statistics = {}
        self._on_statistics = on_statistics
        self.policy_id = policy_id
        self.version = UNTRAINED
        self._reader = reader

    @property
    def is_shared(self) -> bool:
        """Tell whether the policy is the learner's own."""
        return self._reader is None

    def acted(self, version: Version) -> Version:
        """Return the version that acted since this was asked last, where `version` was to act."""
        return version

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
