"""Compare what the workers of a run ask for with what a Ray cluster has, before any is started.

Ray never refuses a worker that cannot be placed: it waits, in silence, for a machine that may come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ding_like.comm.ray.library import load_ray
from ding_like.comm.ray.own_cluster import Amounts, object_store_bytes
from ding_like.comm.workers.resources import Resources
from ding_like.errors import ConfigError
from ding_like.utils.memory import available_bytes
from ding_like.utils.processes import num_cores

_OWN = ("CPU", "GPU", "memory", "object_store_memory")  # kinds that Ray itself knows
_SLACK = 1e-6  # amounts are sums of fractions
# Memory of a worker's process that it shares with no other: measured on a collector of CartPole, more with larger envs.
_WORKER_BYTES = 180 * 2**20
_FIX = (
    "Lower the number of workers (--workers or system.ray.collect.workers, "
    "system.ray.grad.workers) or their resources (num_cpus may be a fraction), or add machines."
)


@dataclass(frozen=True)
class Need:
    """Say that `number` workers of a kind ("collector", "gradient worker") are wanted, each with `each`."""

    kind: str
    number: int
    each: Resources


@dataclass(frozen=True)
class Node:
    """Say what a machine of a cluster has; `memory` in bytes."""

    name: str
    num_cpus: float
    num_gpus: float = 0.0
    memory: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)


class Plan:
    """Say which workers fit: each on one node, and all of them together beside what others use.

    Workers are placed the largest first, each on the first node with room, as Ray's scheduler is greedy too.
    """

    def __init__(self, needs: Sequence[Need], nodes: Sequence[Node], *, free: Node, remark: str = "") -> None:
        """Place `needs` on `nodes`; `free` is what others leave of all nodes together, `remark` ends the table."""
        self.needs = [need for need in needs if need.number > 0]
        self.nodes = list(nodes)
        self.free = free
        self._remark = remark
        self.unplaced = _place(self.needs, self.nodes)  # kind -> how many of it have no room

    @property
    def fits(self) -> bool:
        """Tell whether all workers have room."""
        return not self.unplaced and not self._short

    @property
    def _short(self) -> list[str]:
        """Return the kinds of resources that others leave too little of."""
        wanted, free = _sums(self.needs), _amounts(self.free)
        return [name for name, amount in wanted.items() if amount > free.get(name, 0.0) + _SLACK]

    @property
    def table(self) -> str:
        """Return what is wanted and what there is, for a console."""
        names = list(dict.fromkeys(["CPU", "GPU", "memory", *_sums(self.needs), *_amounts(self.free)]))
        rows = [["", "number", *names]]
        for need in self.needs:
            rows.append([need.kind, str(need.number), *_written(_wanted(need.each), names)])
        rows.append(
            ["wanted in all", str(sum(need.number for need in self.needs)), *_written(_sums(self.needs), names)]
        )
        for node in self.nodes:
            rows.append([node.name, "", *_written(_amounts(node), names)])
        rows.append(["free now", "", *_written(_amounts(self.free), names)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]
        verdict = "fits" if self.fits else f"does not fit: {'; '.join(self._faults())}.\n{_FIX}"
        return "\n".join(line.rstrip() for line in [*lines, *([self._remark] if self._remark else []), verdict])

    def check(self) -> None:
        """Raise ConfigError if the workers do not fit: which do not, what there is, and what to lower."""
        if not self.fits:
            raise ConfigError(
                f"the workers do not fit on the Ray cluster, which would wait for room without a word.\n{self.table}"
            )

    def _faults(self) -> list[str]:
        faults = []
        for kind, number in self.unplaced.items():
            need = next(need for need in self.needs if need.kind == kind)
            asked = ", ".join(
                f"{_number(amount, name)} {name}" for name, amount in _wanted(need.each).items() if amount
            )
            room = (
                "no node has that" if not any(_Room(node).take(need.each) for node in self.nodes) else "no room is left"
            )
            faults.append(f"{number} of {need.number} {kind}s ({asked or 'nothing'} each): {room}")
        wanted, free = _sums(self.needs), _amounts(self.free)
        for name in self._short if not self.unplaced else []:
            faults.append(
                f"{_number(wanted[name], name)} {name} are wanted in all and {_number(free.get(name, 0.0), name)} are "
                "free: other programs have the rest"
            )
        return faults


def plan_here(needs: Sequence[Need], amounts: Amounts | None = None) -> tuple[Plan, Amounts]:
    """Return the plan for a cluster of its own, starting nothing, and the amounts to start that with.

    Its CPUs are a count that Ray keeps, and workers may share this machine's: as many are given as are asked for, and
    the table says so. GPUs and memory are what they are; a worker that asks for no memory counts as the smallest one.
    """
    asked = amounts or Amounts()
    wanted = _sums([need for need in needs if need.number > 0]).get("CPU", 0.0)
    here = num_cores()
    cpus = max(float(here), wanted) if asked.num_cpus is None else asked.num_cpus
    gpus = float(torch.cuda.device_count()) if asked.num_gpus is None else asked.num_gpus
    store = object_store_bytes(asked.object_store_bytes)
    node = Node("this machine", cpus, gpus, available_bytes() - store, asked.resources)
    needs = [replace(need, each=replace(need.each, memory=need.each.memory or _WORKER_BYTES)) for need in needs]
    remark = f"{wanted:g} CPUs are asked of this machine's {here}: the workers share them" if wanted > here else ""
    return Plan(needs, [node], free=node, remark=remark), Amounts(cpus, asked.num_gpus, asked.resources, store)


def plan_on_cluster(needs: Sequence[Need]) -> Plan:
    """Return the plan for the cluster that this process is connected to."""
    ray = load_ray()
    nodes = [_node(str(each["NodeManagerAddress"]), each["Resources"]) for each in ray.nodes() if each["Alive"]]
    return Plan(needs, nodes, free=_node("", ray.available_resources()))


def _node(name: str, resources: Mapping[str, Any]) -> Node:  # Any: numbers, as Ray has them
    # "node:..." names a machine, and "accelerator_type:..." a kind of GPU.
    custom = {kind: float(amount) for kind, amount in resources.items() if kind not in _OWN and ":" not in kind}
    cpus, gpus, memory = (float(resources.get(kind, 0.0)) for kind in _OWN[:3])
    return Node(name, cpus, gpus, memory, custom)


class _Room:
    """Hold what is left of a node while workers are placed on it."""

    def __init__(self, node: Node) -> None:
        self._left = {name: amount for name, amount in _amounts(node).items() if name != "GPU"}
        # Fractions of a GPU are of one GPU, and several GPUs are whole ones.
        self._gpus = [1.0] * int(node.num_gpus)

    def take(self, each: Resources) -> bool:
        """Place a worker here if there is room; tell whether there was."""
        wanted = _wanted(each)
        gpus = wanted.pop("GPU")
        share, number = (gpus, 1) if 0 < gpus < 1 else (1.0, round(gpus))
        chosen = [place for place, left in enumerate(self._gpus) if left + _SLACK >= share][:number]
        if len(chosen) < number:
            return False
        if any(amount > self._left.get(name, 0.0) + _SLACK for name, amount in wanted.items()):
            return False
        for place in chosen:
            self._gpus[place] -= share
        for name, amount in wanted.items():
            self._left[name] = self._left.get(name, 0.0) - amount
        return True


def _place(needs: Iterable[Need], nodes: Sequence[Node]) -> dict[str, int]:
    rooms = [_Room(node) for node in nodes]
    unplaced: dict[str, int] = {}
    for need in sorted(needs, key=lambda need: _size(need.each), reverse=True):
        placed = sum(any(room.take(need.each) for room in rooms) for _ in range(need.number))
        if placed < need.number:
            unplaced[need.kind] = unplaced.get(need.kind, 0) + need.number - placed
    return unplaced


def _size(each: Resources) -> tuple[float, ...]:
    return each.num_gpus, sum(each.custom.values()), each.num_cpus, float(each.memory or 0)


def _wanted(each: Resources) -> dict[str, float]:
    return {"CPU": each.num_cpus, "GPU": each.num_gpus, "memory": float(each.memory or 0), **each.custom}


def _amounts(node: Node) -> dict[str, float]:
    return {"CPU": node.num_cpus, "GPU": node.num_gpus, "memory": node.memory, **node.custom}


def _sums(needs: Iterable[Need]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for need in needs:
        for name, amount in _wanted(need.each).items():
            sums[name] = sums.get(name, 0.0) + need.number * amount
    return sums


def _written(amounts: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [_number(amounts[name], name) if amounts.get(name) else "-" for name in names]


def _number(amount: float, name: str) -> str:
    return f"{amount / 2**30:.3g} GiB" if name == "memory" else f"{amount:g}"
