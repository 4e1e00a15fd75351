"""Put buffers together from configs: what all registered ones have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ding_like.config.tree import deep_merge
from ding_like.errors import ConfigError
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds
from ding_like.worker.replay_buffer.buffer import ReplayBuffer
from ding_like.worker.replay_buffer.limiter import RateLimiter
from ding_like.worker.replay_buffer.sampler import Sampler
from ding_like.worker.replay_buffer.store import Store


class Parts(NamedTuple):
    """Hold what a buffer is made of; Any: each preset's two agree on the storage."""

    store: Store[Any]
    sampler: Sampler[Any]
    limiter: RateLimiter | None = None


class PresetBuffer(ReplayBuffer):
    """Be a `ReplayBuffer` whose parts are those of a config."""

    config: dict[str, Any] = {
        # Rows that the buffer holds; the oldest are overwritten.
        "replay_buffer_size": 10000,
        # A key of DI-engine's configs: see `without_effect`.
        "deepcopy": False,
        # Rows are dicts whose 'data_id' names a file; the files of rows that leave the buffer are deleted.
        "enable_track_used_data": False,
        # Length k of stacked frames: columns obs and next_obs [k, ...] are kept with each frame once; 0: as they come.
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
        cfg: Mapping[str, Any],
        tb_logger: Any = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        cfg = self._full(cfg)
        super().__init__(
            *self.make_parts(cfg),
            rng=rng,
            tb_logger=tb_logger,
            exp_name=exp_name,
            instance_name=instance_name,
            **common_settings(cfg),
        )

    @classmethod
    def _full(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return a config with all keys: DI-engine's defaults of a class may lack some of the common ones."""
        return deep_merge({**PresetBuffer.config, **cls.config}, cfg)

    @classmethod
    @abstractmethod
    def make_parts(cls, cfg: Mapping[str, Any]) -> Parts:
        """Return the parts that a full config asks for. Raises ConfigError for settings that make no sense."""


def common_settings(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `ReplayBuffer` that a full config gives."""
    monitor = cfg.get("monitor")  # where DI-engine's prioritised buffer says how often to report
    report_every_s = cfg["periodic_thruput_seconds"] if monitor is None else monitor["periodic_thruput"]["seconds"]
    return dict(report_every_s=float(report_every_s), tracks_used_data=bool(cfg["enable_track_used_data"]))


def refuse_frame_stack(cfg: Mapping[str, Any], *, what: str, instead: str = "") -> None:
    """Raise ConfigError for a buffer that keeps no stacks of frames."""
    if cfg["frame_stack"]:
        raise ConfigError(
            f"frame_stack is {cfg['frame_stack']}, but {what} buffer keeps rows as they come. Set it to 0{instead}."
        )
