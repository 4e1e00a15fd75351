"""Define the config of the SEED trainer, as the document that this API follows has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from ding_like.config.literal import literal
from ding_like.config.section import Rule
from ding_like.config.seed_section import DEVICE, FREQUENCY, FROM_0, FROM_1, SECONDS_FROM_0
from ding_like.errors import ConfigError

_RULES = {
    "max_environment_steps": Rule("1 or more env steps, or -1 for no limit", lambda it: it == -1 or it >= 1),
    "n_step": FROM_1,
    "epsilon": Rule("a probability from 0 to 1", lambda it: 0 <= it <= 1),
    "actor_processes": FROM_1,
    "actor_threads": FROM_1,
    "inference_servers": FROM_1,
    "broadcast_period": SECONDS_FROM_0,
    "inference_batchsize": FROM_0,
    "inference_delay": SECONDS_FROM_0,
    "inference_device": Rule(DEVICE.allowed, lambda it: DEVICE.holds(str(it))),
    "minimum_buffer_size": FROM_0,
    "max_train_frequency": FREQUENCY,
}


_CPU = torch.device("cpu")


@dataclass
class Config:
    """Settings of a SEED trainer. Raises ConfigError, with every fault, for values that make no sense.

    Fields may be changed, and `replace` returns a changed copy; a trainer checks them again.

    `max_environment_steps` is after how many env steps an episode is truncated, -1: where the env does. Rows have
    `n_step` steps of reward; actions are random with probability `epsilon`. There are `actor_processes` of
    `actor_threads` each, and `inference_servers`, which compute batches of `inference_batchsize` requests (0: of all
    that are there), `inference_delay` s after the first of them at the latest, on `inference_device`. They are sent new
    weights every `broadcast_period` s (0.0: after every turn with updates). Training begins with `minimum_buffer_size`
    rows in the buffer, and takes `max_train_frequency` updates a second at most (-1: no limit).
    """

    max_environment_steps: int = -1
    n_step: int = 3
    epsilon: float = 0.1
    actor_processes: int = 1
    actor_threads: int = 4
    inference_servers: int = 1
    broadcast_period: float = 2.5
    inference_batchsize: int = 4
    inference_delay: float = 0.1
    inference_device: torch.device | str = _CPU
    minimum_buffer_size: int = 1000
    max_train_frequency: float = -1

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ConfigError(f"the config of the SEED trainer: {'; '.join(faults)}.")

    def replace(self, **changes: Any) -> Config:  # Any: values of fields
        """Return a copy with some fields changed. Raises ConfigError for values that make no sense."""
        return replace(self, **changes)

    def _faults(self) -> Iterator[str]:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "inference_device":
                kind: tuple[type, ...] = (int, float) if field.type == "float" else (int,)
                if isinstance(value, bool) or not isinstance(value, kind):
                    word = "a number" if float in kind else "a whole number"
                    yield f"{field.name} is {literal(value)}; give {word}"
                    continue
            if not _RULES[field.name].holds(value):
                shown: Any = str(value) if field.name == "inference_device" else value
                yield f"{field.name} is {literal(shown)}; give {_RULES[field.name].allowed}"

    def system(self) -> dict[str, Any]:
        """Return the section `seed` of a `system_config` that says the same."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("max_environment_steps", "n_step", "epsilon"):  # of the env and the policy
            del own[name]
        return {**own, "inference_device": str(self.inference_device)}
