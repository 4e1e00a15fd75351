"""Say what every replay buffer offers, and build one from a config."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from ding_like.errors import ConfigError
from ding_like.types import State
from ding_like.utils.configurable import Configurable
from ding_like.utils.registries import BUFFER_REGISTRY


class IBuffer(Configurable, ABC):
    """Keep training data and hand out samples of it. Whoever stores, copies; whoever samples, gets fresh memory.

    `samples` says what `sample` hands out: the pipelines of this package learn from rows.
    """

    samples: ClassVar[Literal["rows", "windows", "episodes"]] = "rows"

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


def check_samples_rows(buffer_cfg: Mapping[str, Any]) -> None:
    """Raise ConfigError for a buffer that samples windows or whole episodes: pipelines learn from rows."""
    if "type" not in buffer_cfg:
        return  # the buffer of a config that says nothing: 'naive'
    unit = getattr(get_buffer_cls(buffer_cfg), "samples", "rows")
    if unit != "rows":
        raise ConfigError(
            f"policy.other.replay_buffer.type is '{buffer_cfg['type']}', which samples {unit}, but pipelines learn "
            "from rows. Set it to 'naive' or 'advanced'; docs/buffers.md says how the others are used from Python."
        )
