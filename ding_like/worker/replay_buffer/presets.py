"""Buffers of rows and of windows, drawn evenly or by priority (Schaul et al. 2016), by their names in configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace as changed
from typing import Any, ClassVar

from ding_like.data.batch import SequenceBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Config, SampleUnit, State
from ding_like.utils.bounds import ABOVE_0, FROM_0, FROM_1, Bounds
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.buffer import (
    Parts,
    PresetBuffer,
    ReplayBuffer,
    RowStore,
    StreamStore,
    common_settings,
    raise_fault,
    refuse_frame_stack,
)
from ding_like.worker.replay_buffer.flow import RateLimiter
from ding_like.worker.replay_buffer.priorities import Priorities
from ding_like.worker.replay_buffer.sampler import (
    ByPriority,
    PrioritisedSampler,
    PrioritisedWindowSampler,
    UniformSampler,
    WindowSampler,
    WindowShape,
)
from ding_like.worker.replay_buffer.storage import Rows


@BUFFER_REGISTRY.register("naive")
class NaiveReplayBuffer(PresetBuffer):
    """Buffer of the last `replay_buffer_size` rows, each as likely to be sampled as any other."""

    config: dict[str, Any] = {"type": "naive", **PresetBuffer.config}

    @classmethod
    def make_parts(cls, cfg: Config) -> Parts:
        store = RowStore(int(cfg["replay_buffer_size"]), frame_stack=int(cfg["frame_stack"]))
        return Parts(store, UniformSampler())


_INF = float("inf")


@BUFFER_REGISTRY.register("advanced")
class AdvancedReplayBuffer(PresetBuffer):
    """Buffer that samples row i with probability `p_i^alpha / sum_k p_k^alpha` and weight `(p_i^alpha / min_k)^-beta`.

    A row without a `priority` gets the largest one stored so far (1 at first). `Priorities` has the details.
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

    clear_resets_push_count = False  # as in DI-engine: ids continue as well

    @classmethod
    def make_parts(cls, cfg: Config) -> Parts:
        store = RowStore(int(cfg["replay_buffer_size"]), frame_stack=int(cfg["frame_stack"]))
        sampler = PrioritisedSampler(store.capacity, cfg)
        return Parts(store, sampler, RateLimiter.from_cfg(cfg["thruput_controller"]))

    @property
    def alpha(self) -> float:
        """Exponent of priorities: 0 samples evenly, 1 in proportion."""
        return self._priorities.alpha

    @property
    def beta(self) -> float:
        """Exponent of importance weights: 0 leaves them at 1, 1 corrects the uneven sampling."""
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

    def sample(  # type: ignore[override]  # DI-engine's signature has no `replace`: draws by priority have none
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None
    ) -> Rows | None:
        """Return `size` rows by priority, each in memory of its own: a TransitionBatch, or a list of dicts.

        Each also has `replay_unique_id`, `replay_buffer_idx`, `priority`, `weight` (DI-engine's `IS`), `use` (this time
        included) and `staleness` (-1 if not known). `sample_range` restricts the draw by age: slice(-10, None) are the
        ten newest places. Returns None, with the reason in the log, if there are too few rows.
        """
        return super().sample(size, cur_learner_iter, sample_range)

    def load_state_dict(self, _state_dict: State, deepcopy: bool = False) -> None:
        """Restore what `state_dict` returned, so that equal calls give equal samples; all is copied in any case."""
        super().load_state_dict(_state_dict)


_WINDOWS: dict[str, Any] = {
    # Rows of a window that pipelines sample; 10 is what Hausknecht and Stone 2015 unrolled.
    "sequence_length": 10,
    # Lanes of the rows, each with an equal part of the buffer; None: as many as were seen.
    "num_streams": None,
    # Windows may run over the end of an episode; `mask` is False behind it.
    "padding": False,
    # First steps of a window that warm up recurrent state and are not learned from: False in `mask`.
    "burn_in": 0,
    # Columns of which a window keeps its first row only: recurrent state.
    "initial_columns": [],
}


class WindowBuffer(PresetBuffer):
    """Base class of buffers that sample windows."""

    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "sequence_length": FROM_1,
        "num_streams": FROM_1,
        "burn_in": FROM_0,
    }
    config_types = {"num_streams": (int,)}
    unit: SampleUnit = "window"

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) where pipelines could learn nothing from windows."""
        length, burn_in = cfg["sequence_length"], cfg["burn_in"]
        if length < 1 or length <= burn_in:
            yield (
                "sequence_length",
                f"is {length} and burn_in {burn_in}: a window needs rows to learn from; give a number above burn_in",
            )

    @staticmethod
    def _new_store(cfg: Config) -> StreamStore:
        refuse_frame_stack(cfg, what="a sequence", instead=", or push single frames: a window of them is a stack")
        return StreamStore(
            int(cfg["replay_buffer_size"]), num_streams=cfg["num_streams"], needed=tuple(cfg["initial_columns"])
        )

    @staticmethod
    def _window_shape(cfg: Config) -> WindowShape:
        return WindowShape(
            int(cfg["sequence_length"]), bool(cfg["padding"]), int(cfg["burn_in"]), tuple(cfg["initial_columns"])
        )


@BUFFER_REGISTRY.register("sequence")
class SequenceReplayBuffer(WindowBuffer, NaiveReplayBuffer):
    """Buffer that samples windows of a fixed length, which never cross an episode's end.

    Rows are kept by lane, and each window of rows that follow each other is as likely as any other. With `padding`
    windows may run over an episode's end: what is beyond is zero and False in the column `mask`.
    """

    config: dict[str, Any] = {**NaiveReplayBuffer.config, "type": "sequence", **_WINDOWS}

    @classmethod
    def make_parts(cls, cfg: Config) -> Parts:
        return Parts(cls._new_store(cfg), WindowSampler(cls._window_shape(cfg)))

    @classmethod
    def for_pipeline(cls, cfg: Config, **kwargs: Any) -> ReplayBuffer:  # those of the constructor
        """Return a buffer of the same parts: `sample(size, train_iter)` gives windows of `sequence_length` rows."""
        cfg = cls._full(cfg)
        raise_fault(cls.check_config(cfg))
        store, sampler, limiter = cls.make_parts(cfg)
        return ReplayBuffer(store, sampler, limiter, **common_settings(cfg), **kwargs)

    def sample(  # type: ignore[override]  # DI-engine's signature has the length of a window in second place
        self,
        batch: int,
        sequence: int,
        cur_learner_iter: int,
        sample_range: slice | None = None,
        replace: bool = False,
    ) -> SequenceBatch | None:
        """Return `batch` windows of `sequence` rows, drawn evenly; without `replace`, none twice.

        `sample_range` restricts where windows begin, by age: slice(-100, None) are the hundred newest rows of each
        stream. Returns None, with the reason in the log, if there are too few windows.
        """
        sampler = self._sampler
        assert isinstance(sampler, WindowSampler), "make_parts gives one"
        shape = sampler.shape
        if batch < 1 or sequence < 1:
            raise SchemaError(f"{batch} windows of {sequence} rows were asked for; give numbers from 1.")
        if sequence <= shape.burn_in:
            raise SchemaError(f"windows of {sequence} rows are all burn-in ({shape.burn_in}); make them longer.")
        if sequence != shape.num_steps:
            self._sampler = WindowSampler(changed(shape, num_steps=sequence))  # kept: most ask for one length
        windows = NaiveReplayBuffer.sample(self, batch, cur_learner_iter, sample_range, replace)
        assert windows is None or isinstance(windows, SequenceBatch), "a window sampler gives windows"
        return windows


@BUFFER_REGISTRY.register("prioritised_sequence")
class PrioritisedSequenceReplayBuffer(WindowBuffer, AdvancedReplayBuffer):
    """Buffer that samples windows of `sequence_length` rows by priority (Kapturowski et al. 2019).

    Each window has one priority, weight, use and age: `batch["weight"]` is [B], and so is what `update` takes.
    """

    config: dict[str, Any] = {**AdvancedReplayBuffer.config, "type": "prioritised_sequence", **_WINDOWS}

    @classmethod
    def make_parts(cls, cfg: Config) -> Parts:
        raise_fault(cls.check_config(cfg))
        store = cls._new_store(cfg)
        sampler = PrioritisedWindowSampler(store.capacity, cfg, cls._window_shape(cfg))
        return Parts(store, sampler, RateLimiter.from_cfg(cfg["thruput_controller"]))
