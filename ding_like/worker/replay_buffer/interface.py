"""Say what every replay buffer offers, build one from a config, check that it samples what a policy learns from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ding_like.errors import ConfigError
from ding_like.types import SampleUnit, State
from ding_like.utils.bounds import Configurable
from ding_like.utils.registries import BUFFER_REGISTRY

# What to set, by what a policy learns from.
_BUFFERS_OF: Mapping[SampleUnit, str] = {
    "row": "'naive' or 'advanced'",
    "window": "'sequence' or 'prioritised_sequence'",
    "episode": "'episode'",
}


class IBuffer(Configurable, ABC):
    """Keep training data and hand out samples of it. A push copies; a sample is fresh memory.

    `unit` says of what kind the data are that `sample` hands out. A buffer that `needs_env` is built with
    `make_env=`, a function that makes one env of the run, and must hold the rows themselves.
    """

    unit: SampleUnit = "row"
    needs_env: ClassVar[bool] = False

    @classmethod
    def for_pipeline(cls, cfg: Mapping[str, Any], **kwargs: Any) -> IBuffer:  # those of the class's constructor
        """Return a buffer as pipelines use it, by `sample(size, train_iter)`."""
        return cls(cfg, **kwargs)  # type: ignore[call-arg]  # each class has its own constructor

    @abstractmethod
    def push(self, data: Any, cur_collector_envstep: int) -> None:
        """Store a batch, a list, or one datum of any kind."""

    @abstractmethod
    def update(self, info: Mapping[str, Any]) -> None:
        """Take what the learner says of data it was given, e.g. priorities."""

    @abstractmethod
    def sample(self, batch_size: int, cur_learner_iter: int) -> Sequence[Any] | None:
        """Return `batch_size` data, or None where that cannot be; the log says why."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all data."""

    @abstractmethod
    def count(self) -> int:
        """Return how many data there are."""

    @property
    def num_bytes(self) -> int:
        """Return about how much memory the data take; 0 where a buffer does not know."""
        return 0

    @abstractmethod
    def save_data(self, file_name: str) -> None:
        """Write the data to a file, whole or not at all."""

    @abstractmethod
    def load_data(self, file_name: str) -> None:
        """Push what `save_data` wrote."""

    def cut(self) -> None:
        """Let no row that comes follow one that is here: called where open episodes do not go on."""

    @abstractmethod
    def state_dict(self) -> State:
        """Return all that a later sample depends on, in memory of its own."""

    @abstractmethod
    def load_state_dict(self, _state_dict: State) -> None:
        """Take over what `state_dict` returned."""


def create_buffer(cfg: Mapping[str, Any], *args: Any, **kwargs: Any) -> IBuffer:
    """Build the buffer that `cfg.type` names; the arguments go on to it. Raises RegistryError for an unknown name."""
    return get_buffer_cls(cfg)(cfg, *args, **kwargs)  # type: ignore[call-arg]  # each class has its own constructor


def get_buffer_cls(cfg: Mapping[str, Any]) -> type[IBuffer]:
    """Return the class that `cfg.type` names. Raises RegistryError for an unknown name."""
    cls: type[IBuffer] = BUFFER_REGISTRY.get(cfg["type"], cfg.get("import_names", ()))
    return cls


def create_pipeline_buffer(cfg: Mapping[str, Any], **kwargs: Any) -> IBuffer:  # those of the class's constructor
    """Build the buffer that `cfg.type` names, to be sampled by `sample(size, train_iter)` whatever its unit is."""
    return get_buffer_cls(cfg).for_pipeline(cfg, **kwargs)


def check_sample_unit(
    buffer_cfg: Mapping[str, Any],
    unit: SampleUnit,
    *,
    policy: str,
    pipeline: str,
    offered: tuple[SampleUnit, ...],
    holds_rows: bool = True,
) -> None:
    """Raise ConfigError unless the buffer hands out the `unit` that the policy of this name learns from.

    A policy that learns from rows also learns from the rows of whole episodes, where the pipeline offers them.
    `offered` are the units that the pipeline can fill a buffer for; `holds_rows` says whether it puts the rows
    themselves there, and not their numbers.
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
