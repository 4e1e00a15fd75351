"""Keep the newest rows and sample the important ones more often (Schaul et al. 2016, proportional variant)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ding_like.errors import ConfigError
from ding_like.types import State
from ding_like.utils.bounds import ABOVE_0, FROM_0, FROM_1, Bounds
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.buffer import Parts, PresetBuffer
from ding_like.worker.replay_buffer.limiter import RateLimiter
from ding_like.worker.replay_buffer.priorities import Priorities, PrioritySettings
from ding_like.worker.replay_buffer.sampler import ByPriority, PrioritisedSampler
from ding_like.worker.replay_buffer.store import RowStore

_INF = float("inf")


@BUFFER_REGISTRY.register("advanced")
class AdvancedReplayBuffer(PresetBuffer):
    """Sample row i with probability `p_i^alpha / sum_k p_k^alpha`; its `weight` is `(p_i^alpha / min_k)^-beta`.

    A row that says no `priority` gets the largest one stored so far (1 at first). `Priorities` says more.
    """

    config: dict[str, Any] = {
        "type": "advanced",
        "replay_buffer_size": 4096,
        "frame_stack": 0,
        # How often a row may be sampled before it is removed.
        "max_use": _INF,
        # Updates after which a row is too old; counted from its `collect_iter` or `policy_version`.
        "max_staleness": _INF,
        # Exponent of priorities, 0: sample evenly, 1: in proportion to the priorities.
        "alpha": 0.6,
        # Exponent of importance weights, 0: all are 1, 1: they make up for the uneven sampling.
        "beta": 0.4,
        # Samples in which beta rises to 1; 0: it stays.
        "anneal_step": 1e5,
        "enable_track_used_data": False,
        # A key of DI-engine's configs: see `without_effect`.
        "deepcopy": False,
        "thruput_controller": {
            "push_sample_rate_limit": {
                # Most rows pushed per row sampled: above it pushes are dropped.
                "max": _INF,
                # Fewest rows pushed per row sampled: below it there are no samples.
                "min": 0,
            },
            # Seconds over which pushed and sampled rows are counted.
            "window_seconds": 30,
            # A sample of n rows needs n times this many rows in the buffer.
            "sample_min_limit_ratio": 1,
        },
        "monitor": {
            "sampled_data_attr": {
                # Samples of each `print_freq`, the last ones, over which the log averages priorities and uses.
                "average_range": 5,
                # Samples between two log lines about priorities and uses.
                "print_freq": 200,
            },
            "periodic_thruput": {
                # Seconds between two log lines about rows pushed and sampled.
                "seconds": 60,
            },
        },
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "max_use": Bounds(1, may_be_infinite=True),
        "max_staleness": Bounds(0, is_above_low=True, may_be_infinite=True),
        "alpha": FROM_0,
        "beta": FROM_0,
        "anneal_step": FROM_0,
        "thruput_controller.push_sample_rate_limit.max": Bounds(0, may_be_infinite=True),
        "thruput_controller.push_sample_rate_limit.min": FROM_0,
        "thruput_controller.window_seconds": ABOVE_0,
        "thruput_controller.sample_min_limit_ratio": FROM_0,
        "monitor.sampled_data_attr.average_range": FROM_1,
        "monitor.sampled_data_attr.print_freq": FROM_1,
        "monitor.periodic_thruput.seconds": FROM_0,
    }

    clear_resets_push_count = False  # as in DI-engine: ids go on as well

    @classmethod
    def make_parts(cls, cfg: Mapping[str, Any]) -> Parts:
        store = RowStore(int(cfg["replay_buffer_size"]), frame_stack=int(cfg["frame_stack"]))
        sampler = PrioritisedSampler(store.capacity, PrioritySettings.from_cfg(cfg))
        return Parts(store, sampler, RateLimiter.from_cfg(cfg["thruput_controller"]))

    @property
    def alpha(self) -> float:
        """Return how far rows are sampled by priority: 0 evenly, 1 in proportion."""
        return self._priorities.alpha

    @property
    def beta(self) -> float:
        """Return how far weights make up for the uneven sampling: 0 not at all, 1 wholly."""
        return self._priorities.beta

    @beta.setter
    def beta(self, value: float) -> None:
        if not 0 <= value <= 1:
            raise ConfigError(f"beta is {value}, expected a number from 0 to 1.")
        self._priorities.beta = float(value)

    @property
    def _priorities(self) -> Priorities:
        sampler = self._sampler
        assert isinstance(sampler, ByPriority), "make_parts gives one"
        return sampler.priorities

    def sample(  # type: ignore[override]  # DI-engine's signature has no `replace`: draws by priority know none
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None
    ) -> Sequence[Any] | None:
        """Return `size` rows by priority, each in memory of its own: a TransitionBatch, or a list of dicts.

        Each also has `replay_unique_id`, `replay_buffer_idx`, `priority`, `weight` (DI-engine's `IS`), `use` (this time
        included) and `staleness` (-1 if not known). `sample_range` restricts the draw by age: slice(-10, None) are the
        ten newest places. Returns None, and says why in the log, if there are too few rows.
        """
        return super().sample(size, cur_learner_iter, sample_range)

    def load_state_dict(self, _state_dict: State, deepcopy: bool = False) -> None:
        """Take over what `state_dict` returned, so that equal calls give equal samples; all is copied in any case."""
        super().load_state_dict(_state_dict)
