"""Read what a worker is to be given from a dict of Ray's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from ding_like.config.system import AMOUNT, Rule
from ding_like.errors import ConfigError
from ding_like.utils.log import one_time_warning

_KEYS = ("num_cpus", "num_gpus", "memory", "resources", "object_store_memory")
_MEMORY = Rule("None for no limit, or 1 or more bytes", lambda it: it >= 1)


@dataclass(frozen=True)
class Resources:
    """Resources of a worker: `num_cpus` and `num_gpus` may be fractions, `memory` is in bytes (None: no limit)."""

    num_cpus: Annotated[float, AMOUNT] = 1.0
    num_gpus: Annotated[float, AMOUNT] = 0.0
    memory: Annotated[int | None, _MEMORY] = None
    custom: Mapping[str, float] = field(default_factory=dict)  # of a cluster's own kinds, by name


def resources_of(options: Mapping[str, Any]) -> Resources:  # Any: numbers, and a dict of them
    """Return what options ask for: num_cpus, num_gpus, memory (bytes), resources (a cluster's own kinds, by name).

    `object_store_memory` has no effect: Ray keeps none back for a worker; that is said once. Raises ConfigError for any
    other key, and for what is no number of 0 or more.
    """
    faults = [f"there is no '{key}' (there are {', '.join(_KEYS)})" for key in options if key not in _KEYS]
    custom = options.get("resources") or {}
    if not isinstance(custom, Mapping):
        faults.append(f"resources is {custom!r}, no dict of numbers by name")
        custom = {}
    numbers = {**{key: options[key] for key in options if key in _KEYS and key != "resources"}, **custom}
    for key, value in numbers.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
        if not is_number and not (value is None and key in ("memory", "object_store_memory")):
            faults.append(f"{key} is {value!r}, no number of 0 or more")
    if faults:
        raise ConfigError(f"resources of workers: {'; '.join(faults)}.")
    if options.get("object_store_memory"):
        one_time_warning(
            "object_store_memory of workers has no effect: Ray keeps none back for a worker. Set the size of the "
            "object store where the cluster is started."
        )
    memory = options.get("memory")
    return Resources(
        num_cpus=float(options.get("num_cpus", 1.0)),
        num_gpus=float(options.get("num_gpus", 0.0)),
        memory=None if memory is None else int(memory),
        custom={str(key): float(value) for key, value in custom.items()},
    )


def options_of(resources: Resources) -> dict[str, Any]:  # Any: numbers, and a dict of them
    """Return the options that `resources_of` reads as these."""
    options = asdict(resources)
    return {"resources": options.pop("custom"), **options}
