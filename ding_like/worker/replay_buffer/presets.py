"""Buffers by their names in configs: of rows, windows and episodes, drawn evenly or by priority."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace as changed
from typing import Any, ClassVar

import numpy as np

from ding_like.config.tree import deep_merge, get_path
from ding_like.data.batch import EpisodeBatch, Schema, SequenceBatch, TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, Config, SampleUnit, Section, State
from ding_like.utils.bounds import ABOVE_0, FROM_0, FROM_1, Bounds, declared
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.buffer import IBuffer, Parts, RateLimiter, ReplayBuffer, RowStore, StreamStore
from ding_like.worker.replay_buffer.priorities import Priorities
from ding_like.worker.replay_buffer.sampler import (
    ByPriority,
    PrioritisedSampler,
    PrioritisedWindowSampler,
    UniformSampler,
    WindowSampler,
    WindowShape,
)
from ding_like.worker.replay_buffer.storage import Dump, ObjectStorage, Pushed, RingStorage, Rows, arrays_of


class PresetBuffer(ReplayBuffer):
    """Base class of buffers whose parts are made from a config."""

    config: dict[str, Any] = {
        # Rows that the buffer holds; the oldest are overwritten.
        "replay_buffer_size": 10000,
        # A key of DI-engine's configs: see `without_effect`.
        "deepcopy": False,
        # Rows are dicts whose 'data_id' names a file; the files of rows that leave the buffer are deleted.
        "enable_track_used_data": False,
        # Length k of stacked frames: columns obs and next_obs [k, ...] are kept with each frame once; 0: as pushed.
        "frame_stack": 0,
        # Seconds between two log lines about rows pushed and sampled.
        "periodic_thruput_seconds": 60,
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "replay_buffer_size": FROM_1,
        "frame_stack": FROM_0,
        "periodic_thruput_seconds": FROM_0,
    }
    without_effect: ClassVar[Mapping[str, str]] = {"deepcopy": "a buffer copies on push and on sample in any case"}

    def __init__(
        self,
        cfg: Config,
        tb_logger: object = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        cfg = self._full(cfg)
        parts, common = self.make_parts(cfg), common_settings(cfg)
        super().__init__(*parts, rng=rng, tb_logger=tb_logger, exp_name=exp_name, instance_name=instance_name, **common)

    @classmethod
    def _full(cls, cfg: Config) -> Section:
        """Return a config with all keys: DI-engine's defaults of a class may lack some of the common ones.

        Raises ConfigError for a number out of bounds.
        """
        full = deep_merge({**PresetBuffer.config, **cls.config}, cfg)
        for path, bounds in declared(cls, "config_bounds").items():
            value = get_path(full, path)  # None: a key of another buffer's config
            if not bounds.hold(value):
                raise ConfigError(f"replay_buffer.{path} is {value}; give {bounds}.")
        return full

    @classmethod
    @abstractmethod
    def make_parts(cls, cfg: Config) -> Parts:
        """Return the parts that a full config asks for. Raises ConfigError for settings that make no sense."""


def common_settings(cfg: Config) -> Section:
    """Return the keyword arguments of `ReplayBuffer` that a full config gives."""
    monitor = cfg.get("monitor")  # of DI-engine's prioritised buffer
    report_every_s = cfg["periodic_thruput_seconds"] if monitor is None else monitor["periodic_thruput"]["seconds"]
    return dict(report_every_s=float(report_every_s), tracks_used_data=bool(cfg["enable_track_used_data"]))


def raise_fault(faults: Iterable[tuple[str, str]]) -> None:
    """Raise ConfigError for the first of the faults (path, message) of a config."""
    for path, message in faults:
        raise ConfigError(f"replay_buffer.{path} {message}.")


def refuse_frame_stack(cfg: Config, *, what: str, instead: str = "") -> None:
    """Raise ConfigError for a buffer that keeps no stacks of frames."""
    if cfg["frame_stack"]:
        raise ConfigError(
            f"frame_stack is {cfg['frame_stack']}, but {what} buffer keeps rows as they come. Set it to 0{instead}."
        )


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
    def _store_and_shape(cfg: Config) -> tuple[StreamStore, WindowShape]:
        refuse_frame_stack(cfg, what="a sequence", instead=", or push single frames: a window of them is a stack")
        initial = tuple(cfg["initial_columns"])
        store = StreamStore(int(cfg["replay_buffer_size"]), num_streams=cfg["num_streams"], needed=initial)
        return store, WindowShape(int(cfg["sequence_length"]), bool(cfg["padding"]), int(cfg["burn_in"]), initial)


@BUFFER_REGISTRY.register("sequence")
class SequenceReplayBuffer(WindowBuffer, NaiveReplayBuffer):
    """Buffer that samples windows of a fixed length, which never cross an episode's end.

    Rows are kept by lane, and each window of rows that follow each other is as likely as any other. With `padding`
    windows may run over an episode's end: what is beyond is zero and False in the column `mask`.
    """

    config: dict[str, Any] = {**NaiveReplayBuffer.config, "type": "sequence", **_WINDOWS}

    @classmethod
    def make_parts(cls, cfg: Config) -> Parts:
        store, shape = cls._store_and_shape(cfg)
        return Parts(store, WindowSampler(shape))

    @classmethod
    def for_pipeline(cls, cfg: Config, **kwargs: Any) -> ReplayBuffer:  # those of the constructor
        """Return a buffer of the same parts: `sample(size, train_iter)` gives windows of `sequence_length` rows."""
        cfg = cls._full(cfg)
        raise_fault(cls.check_config(cfg))
        store, sampler, limiter = cls.make_parts(cfg)
        return ReplayBuffer(store, sampler, limiter, **common_settings(cfg), **kwargs)

    def sample(  # type: ignore[override]  # DI-engine's signature has the length of a window in second place
        self, batch: int, sequence: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
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
        store, shape = cls._store_and_shape(cfg)
        sampler = PrioritisedWindowSampler(store.capacity, cfg, shape)
        return Parts(store, sampler, RateLimiter.from_cfg(cfg["thruput_controller"]))


_PREFIX, _OFFSETS = "column/", "offsets"  # how a saved buffer names its parts


class EpisodeStorage(ObjectStorage):
    """Ring of episodes of any length, each in columns of its own."""

    schema: Schema

    def __init__(self, capacity: int, schema: Schema) -> None:
        super().__init__(capacity)
        self.schema = schema

    @property
    def num_bytes(self) -> int:
        return sum(len(episode) for episode in self._objects if episode is not None) * self.schema.row_bytes

    def gather(self, rows: Array) -> EpisodeBatch:  # type: ignore[override]  # one batch in place of a list of objects
        """Return episodes end to end, in fresh memory."""
        chosen = [self._objects[row] for row in rows.tolist()]
        offsets = np.append(0, np.cumsum([len(episode) for episode in chosen])).astype(np.int64)
        columns = {
            name: np.concatenate([episode[name] for episode in chosen]) if chosen else empty
            for name, empty in self.schema.allocate(0).items()
        }
        return EpisodeBatch(TransitionBatch(columns), offsets)

    def _accept(self, data: Rows) -> list[TransitionBatch]:
        accepted = []
        for episode in data:
            columns = {name: np.array(column) for name, column in episode.columns.items()}  # copies
            self.schema.check(columns, where="the buffer")
            accepted.append(TransitionBatch(columns))
        return accepted

    def dump(self) -> Dump:
        episodes = self.gather(self.all_places())
        columns = {f"{_PREFIX}{name}": column for name, column in episodes.batch.columns.items()}
        return {_OFFSETS: episodes.offsets, **columns}


class EpisodeStore(RowStore):
    """Store of whole episodes: in columns of their own, or as objects where their rows do not stack."""

    def as_rows(self, data: Pushed, *, as_objects: bool) -> Rows:
        episodes = _episodes_of(data)
        stacked = [as_batch(episode) for episode in episodes]
        if as_objects or self._has_objects or any(episode is None for episode in stacked):
            return self._objects(list(episodes))
        return stacked

    def make(self, rows: Rows) -> RingStorage:
        if not isinstance(rows[0], TransitionBatch):
            return ObjectStorage(self.capacity)
        return EpisodeStorage(self.capacity, Schema.of(arrays_of(rows[0])))

    def parts_of(self, dump: Dump) -> Iterator[Pushed]:
        if isinstance(dump, dict):
            columns = {name[len(_PREFIX) :]: column for name, column in dump.items() if name != _OFFSETS}
            yield EpisodeBatch(TransitionBatch(columns), dump[_OFFSETS])
        else:
            yield from super().parts_of(dump)


class EpisodeSampler(UniformSampler):
    """Sampler that draws each episode as likely as any other; `padding` fills them up to rectangles."""

    unit: SampleUnit = "episode"

    def __init__(self, *, padding: bool) -> None:
        self._padding = padding

    def gather(self, storage: RingStorage, places: Array, train_iter: int) -> Rows:
        data = storage.gather(places)
        return _padded(data) if self._padding and isinstance(data, EpisodeBatch) and len(data) else data


@BUFFER_REGISTRY.register("episode")
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Buffer of the last `replay_buffer_size` episodes, each as likely to be sampled as any other, however long.

    `push` takes an EpisodeBatch, or a list of episodes, each a TransitionBatch or a list of rows; a TransitionBatch or
    a list of rows by itself is one episode. `sample` returns an EpisodeBatch, or a list where rows do not stack.
    In a pipeline (`for_pipeline`) a TransitionBatch has the rows of several whole episodes, by `episode_id`.
    """

    config: dict[str, Any] = {
        **NaiveReplayBuffer.config,
        "type": "episode",
        # Return a SequenceBatch [B, T_max, ...], filled up with zeros and False in the column `mask`.
        "padding": False,
    }
    unit: SampleUnit = "episode"
    _parts_rows = False

    @classmethod
    def for_pipeline(cls, cfg: Config, **kwargs: Any) -> EpisodeReplayBuffer:  # those of the constructor
        """Return a buffer whose `push` parts the rows of a batch into their episodes."""
        buffer = cls(cfg, **kwargs)
        buffer._parts_rows = True
        return buffer

    def push(self, data: Pushed, cur_collector_envstep: int) -> None:
        """Copy episodes in. Raises SchemaError if they do not fit, or if rows to be parted lack `episode_id`."""
        if self._parts_rows and isinstance(data, TransitionBatch) and len(data):
            data = _parted(data)
        super().push(data, cur_collector_envstep)

    @classmethod
    def make_parts(cls, cfg: Config) -> Parts:
        refuse_frame_stack(cfg, what="an episode")
        return Parts(EpisodeStore(int(cfg["replay_buffer_size"])), EpisodeSampler(padding=bool(cfg["padding"])))


def _episodes_of(data: Pushed) -> Rows:
    """Return what was pushed as a sequence of episodes."""
    if isinstance(data, EpisodeBatch):
        return data
    if isinstance(data, TransitionBatch):
        return [data]
    if not isinstance(data, list):
        return [[data]] if isinstance(data, Mapping) else [data]
    return [data] if data and isinstance(data[0], Mapping) else data


def _parted(rows: TransitionBatch) -> EpisodeBatch:
    """Return rows as episodes, which begin in the order of their ids."""
    if "episode_id" not in rows.columns:
        raise SchemaError(
            f"an episode buffer parts rows by 'episode_id', but these have {', '.join(rows.columns)}: let the policy's "
            "segment keep the collector's columns."
        )
    order = np.asarray(rows["episode_id"]).argsort(kind="stable")
    ids = np.asarray(rows["episode_id"])[order]
    ends = np.append(np.flatnonzero(ids[1:] != ids[:-1]) + 1, len(ids))
    return EpisodeBatch(rows.take(order), np.append(0, ends))


def _padded(episodes: EpisodeBatch) -> SequenceBatch:
    """Return episodes [N, T_max, ...], filled up with zeros."""
    lengths = np.diff(episodes.offsets)
    steps = np.arange(int(lengths.max()))
    mask = steps < lengths[:, None]
    columns = {}
    for name, column in episodes.batch.columns.items():
        padded = np.zeros((*mask.shape, *column.shape[1:]), column.dtype)
        padded[mask] = column
        columns[name] = padded
    return SequenceBatch({**columns, "mask": mask})


# Buffer types, by the unit that a policy learns from.
_BUFFERS_OF: Mapping[SampleUnit, str] = {
    "row": "'naive' or 'advanced'",
    "window": "'sequence' or 'prioritised_sequence'",
    "episode": "'episode'",
}


def create_buffer(cfg: Config, *args: Any, **kwargs: Any) -> IBuffer:
    """Build the buffer that `cfg.type` names, with the arguments. Raises RegistryError for an unknown name."""
    return get_buffer_cls(cfg)(cfg, *args, **kwargs)  # type: ignore[call-arg]  # each class has its own constructor


def get_buffer_cls(cfg: Config) -> type[IBuffer]:
    """Return the class that `cfg.type` names. Raises RegistryError for an unknown name."""
    cls: type[IBuffer] = BUFFER_REGISTRY.get(cfg["type"], cfg.get("import_names", ()))
    return cls


def create_pipeline_buffer(cfg: Config, **kwargs: Any) -> IBuffer:  # those of the class's constructor
    """Build the buffer that `cfg.type` names, to be sampled by `sample(size, train_iter)` whatever its unit is."""
    return get_buffer_cls(cfg).for_pipeline(cfg, **kwargs)


def check_sample_unit(
    buffer_cfg: Config,
    unit: SampleUnit,
    *,
    policy: str,
    pipeline: str,
    offered: tuple[SampleUnit, ...],
    holds_rows: bool = True,
) -> None:
    """Raise ConfigError unless the buffer samples the `unit` that the policy of this name learns from.

    A policy that learns from rows also learns from the rows of whole episodes, where the pipeline offers them.
    `offered` are the units that the pipeline can fill a buffer for; without `holds_rows` it stores the rows' numbers
    instead of the rows.
    """
    if unit not in offered:
        units = " or ".join(f"{each}s" for each in offered)
        raise ConfigError(
            f"policy '{policy}' learns from {unit}s, but {pipeline} fills buffers of {units} only. "
            "Choose another mode or policy; docs/buffers.md says how the buffers are used from Python."
        )
    # A config that names no buffer has 'naive'.
    kind = buffer_cfg.get("type", "naive")
    cls = get_buffer_cls({"type": kind, **buffer_cfg})
    if not holds_rows and getattr(cls, "needs_env", False):
        raise ConfigError(
            f"policy.other.replay_buffer.type is '{kind}', which looks into rows when it draws, but {pipeline} draws "
            "where there are none, at the coordinator. Run it with mode serial, ray or seed."
        )
    given: SampleUnit = getattr(cls, "unit", "row")
    if given == "episode" and unit == "row" and "episode" in offered:
        if buffer_cfg.get("padding"):
            raise ConfigError(
                f"policy.other.replay_buffer.padding is True, but policy '{policy}' learns from the rows of episodes, "
                "which need none. Set it to False."
            )
        return
    if given != unit:
        raise ConfigError(
            f"policy.other.replay_buffer.type is '{kind}', which samples {given}s, but policy '{policy}' learns from "
            f"{unit}s. Set it to {_BUFFERS_OF[unit]}."
        )
