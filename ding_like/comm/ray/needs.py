"""Resources of workers: what a run asks for, and whether a Ray cluster has it, before any worker is started.

Ray never refuses a worker that cannot be placed: it silently waits for a machine that may be added.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import torch

from ding_like.comm.ray.actors import load_ray
from ding_like.config.report import Fault
from ding_like.config.system import AMOUNT, Rule, check_section, settings_of
from ding_like.errors import ConfigError
from ding_like.types import Config
from ding_like.utils.log import one_time_warning
from ding_like.utils.machine import available_bytes, num_cores

_SLACK = 1e-6  # amounts are sums of fractions
# Memory of a worker's process that it shares with no other: measured on a collector of CartPole, more with larger envs.
_WORKER_BYTES = 180 * 2**20
_STORE_BYTES = 2 * 2**30  # by default at most; memory is taken up as it is used
_LEAST_STORE_BYTES = 75 * 2**20  # Ray takes no less
_SHARED_MEMORY = Path("/dev/shm")
_FIX = (
    "Lower the number of workers (--workers or system.ray.collect.workers, "
    "system.ray.grad.workers) or their resources (num_cpus may be a fraction), or add machines."
)


_MEMORY = Rule("None for no limit, or 1 or more bytes", lambda it: it >= 1)


@dataclass(frozen=True)
class Resources:
    """Resources of a worker: `num_cpus` and `num_gpus` may be fractions, `memory` is in bytes (None: no limit)."""

    num_cpus: Annotated[float, AMOUNT] = 1.0
    num_gpus: Annotated[float, AMOUNT] = 0.0
    memory: Annotated[int | None, _MEMORY] = None
    custom: Mapping[str, float] = field(default_factory=dict)  # of a cluster's own kinds, by name


def resources_of(options: Config) -> Resources:
    """Return the resources of Ray's options: num_cpus, num_gpus, memory (bytes), resources (a cluster's own kinds).

    `object_store_memory` has no effect, as Ray reserves none for a worker; that is logged once. Raises ConfigError with
    every unknown option, and every value that is no amount.
    """
    given = {"custom" if name == "resources" else name: value for name, value in options.items()}
    if given.pop("object_store_memory", None):
        one_time_warning(
            "object_store_memory of workers has no effect: Ray keeps none back for a worker. Set the size of the "
            "object store where the cluster is started."
        )
    values, faults = check_section(Resources, "", given)
    for kind, amount in values["custom"].items():
        if not isinstance(amount, int | float) or not AMOUNT.holds(amount):
            faults.append(Fault(f"resources.{kind}", f"is {amount!r}; give {AMOUNT.allowed}"))
    return settings_of(Resources, values, faults, source="the resources of workers")


def options_of(resources: Resources) -> Config:
    """Return the options that `resources_of` reads as these resources."""
    options = asdict(resources)
    return {"resources": options.pop("custom"), **options}


@dataclass(frozen=True)
class Need:
    """Number of workers of a kind ("collector", "gradient worker"), and the resources of `each`."""

    kind: str
    number: int
    each: Resources

    @property
    def amounts(self) -> dict[str, float]:
        """Resources of each worker by Ray's names; memory in bytes."""
        each = self.each
        return {"CPU": each.num_cpus, "GPU": each.num_gpus, "memory": float(each.memory or 0), **each.custom}


class Plan:
    """Comparison of needs with nodes: a worker must fit on one node, and all of them beside other programs' workers."""

    def __init__(
        self, needs: Sequence[Need], nodes: Mapping[str, Mapping[str, float]], *,
        free: Mapping[str, float] | None = None, remark: str = "",
    ) -> None:  # fmt: skip
        """Compare `needs` with `nodes` (name -> amounts), of which `free` is left; `remark` ends the table."""
        self.needs = [need for need in needs if need.number > 0]
        self.nodes, self._remark = nodes, remark
        self.free = _total(nodes.values()) if free is None else free
        self.wanted = _total({k: v * need.number for k, v in need.amounts.items()} for need in self.needs)
        self.faults = [*self._find_faults()]

    @property
    def fits(self) -> bool:
        """Whether all workers have room."""
        return not self.faults

    def _find_faults(self) -> Iterator[str]:
        for need in self.needs:
            if not any(_covers(node, need.amounts) for node in self.nodes.values()):
                asked = ", ".join(f"{_text(v, k)} {k}" for k, v in need.amounts.items() if v) or "nothing"
                yield f"{need.number} of {need.number} {need.kind}s ({asked} each): no node has that"
        for name, amount in self.wanted.items():
            if not _covers(self.free, {name: amount}):
                free = _text(self.free.get(name, 0.0), name)
                yield f"{_text(amount, name)} {name} are wanted in all, and {free} are free"

    @property
    def table(self) -> str:
        """Wanted and available resources, for a console."""
        number = sum(need.number for need in self.needs)
        lines: list[tuple[str, str, Mapping[str, float]]] = [
            *((need.kind, str(need.number), need.amounts) for need in self.needs),
            ("wanted in all", str(number), self.wanted),
            *((name, "", amounts) for name, amounts in self.nodes.items()),
            ("free now", "", self.free),
        ]
        names = list(dict.fromkeys(["CPU", "GPU", "memory", *self.wanted, *self.free]))
        rows = [["", "number", *names]]
        for title, count, amounts in lines:
            rows.append([title, count, *(_text(amounts[k], k) if amounts.get(k) else "-" for k in names)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        text = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
        verdict = "fits" if self.fits else f"does not fit: {'; '.join(self.faults)}.\n{_FIX}"
        return "\n".join([*text, *filter(None, [self._remark]), verdict])

    def check(self) -> None:
        """Raise ConfigError if the workers do not fit, with what is wanted, what is available and what to lower."""
        if not self.fits:
            raise ConfigError(
                f"the workers do not fit on the Ray cluster, which would wait for room without a word.\n{self.table}"
            )


def plan_here(needs: Sequence[Need]) -> Plan:
    """Return the plan for a cluster of its own on this machine, starting nothing.

    CPUs are a count that Ray keeps, and workers may share this machine's: the plan has as many as are asked for, and
    its table has a remark. GPUs and memory are the machine's; a worker that asks for no memory counts as a small one.
    """
    here, wanted = num_cores(), sum(need.number * need.each.num_cpus for need in needs)
    memory = available_bytes() - object_store_bytes()
    node = {"CPU": float(max(here, wanted)), "GPU": float(torch.cuda.device_count()), "memory": memory}
    needs = [replace(need, each=replace(need.each, memory=need.each.memory or _WORKER_BYTES)) for need in needs]
    remark = f"{wanted:g} CPUs are asked of this machine's {here}: the workers share them" if wanted > here else ""
    return Plan(needs, {"this machine": node}, remark=remark)


def plan_on_cluster(needs: Sequence[Need], *, beside_others: bool = True) -> Plan:
    """Return the plan for the cluster that this process is connected to, beside other programs' workers or alone."""
    ray = load_ray()
    nodes = {str(node["NodeManagerAddress"]): _kinds(node["Resources"]) for node in ray.nodes() if node["Alive"]}
    return Plan(needs, nodes, free=_kinds(ray.available_resources()) if beside_others else None)


def object_store_bytes(asked: int | None = None) -> int:
    """Return the size of an own cluster's object store: `asked`, else what this machine can spare, at most 2 GiB.

    Raises ConfigError if shared memory does not hold it.
    """
    free = shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.is_dir() else _STORE_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    size = min(_STORE_BYTES, int(0.3 * memory), int(0.9 * free)) if asked is None else asked
    if size < _LEAST_STORE_BYTES or size > free:
        raise ConfigError(
            f"an object store of {size / 2**20:.0f} MiB cannot be had: Ray takes at least "
            f"{_LEAST_STORE_BYTES / 2**20:.0f} MiB, and {_SHARED_MEMORY} has {free / 2**20:.0f} MiB free. "
            "Ask for another size, or give the container more shared memory (--shm-size)."
        )
    return size


def _kinds(resources: Mapping[str, float]) -> dict[str, float]:
    # "node:..." names a machine, and "accelerator_type:..." a kind of GPU.
    return {k: float(v) for k, v in resources.items() if ":" not in k and k != "object_store_memory"}


def _covers(amounts: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    return all(amount <= amounts.get(name, 0.0) + _SLACK for name, amount in wanted.items())


def _total(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _text(amount: float, name: str) -> str:
    return f"{amount / 2**30:.3g} GiB" if name == "memory" else f"{amount:g}"
