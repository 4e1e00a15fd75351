"""Settings of a Ray run, read from `system_config['ray']`; docs/ray.md describes each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from ding_like.comm.ray.cluster import Need, Resources
from ding_like.comm.workers.failures import FailurePolicy
from ding_like.config import FrozenConfig
from ding_like.config.override import Override
from ding_like.config.report import Fault
from ding_like.config.system import (
    DEVICE,
    FRACTION,
    FROM_0,
    FROM_1,
    SECONDS,
    UPDATES,
    Rule,
    check_mode,
    settings_of,
    subclass_at,
    without_effect,
)
from ding_like.pipeline import ray as schemes
from ding_like.pipeline.checks import faults_of_workers
from ding_like.types import Config

PATH = "system.ray"
COMMUNICATION = {"sync": "synchronous", "async": "asynchronous"}
_CLASSES = {"c_worker": "CWorker", "g_worker": "GWorker", "u_worker": "UWorker"}
_COMPRESS = Rule("'auto', True or False", lambda it: it in ("auto", True, False))
_DEVICE = DEVICE._replace(allowed=f"None for that of policy.cuda, or {DEVICE.allowed}")


@dataclass(frozen=True)
class CollectSettings:
    """Collectors: with 0 workers this process; `comm` None becomes what suits the policy."""

    workers: Annotated[int, FROM_0] = 2
    comm: Literal["sync", "async"] | None = None
    fraction_samples: Annotated[float, FRACTION] = 1.0
    fraction_workers: Annotated[float, FRACTION] = 1.0
    segment_rows: Annotated[int, FROM_0] = 0
    max_policy_lag: Annotated[int | None, UPDATES] = None
    compress: Annotated[str | bool, _COMPRESS] = "auto"
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class GradSettings:
    """Gradient workers, with up to 1 this process, and the limits of their gradients."""

    workers: Annotated[int, FROM_0] = 1
    comm: Literal["sync", "async"] = "sync"
    min_workers: Annotated[int, FROM_1] = 1
    round_timeout_s: Annotated[float, SECONDS] = 60.0
    max_staleness: Annotated[int | None, UPDATES] = None
    staleness: Literal["drop", "down_weight"] = "drop"
    compress: bool = False
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class UpdateSettings:
    """Place where updates are applied: `device` None is that of `policy.cuda`."""

    decentralized: bool = False
    device: Annotated[str | None, _DEVICE] = None


@dataclass(frozen=True)
class WeightSettings:
    """Number of updates after which collectors are sent new weights."""

    interval: Annotated[int, FROM_1] = 1


def _class() -> Any:  # Any: a field of a dataclass
    return field(default_factory=lambda: {"type": None})


@dataclass(frozen=True)
class RaySettings:
    """The section `ray`, checked by `read_ray`."""

    address: str | None = None
    allow_open: bool = False
    collect: CollectSettings = field(default_factory=CollectSettings)
    grad: GradSettings = field(default_factory=GradSettings)
    update: UpdateSettings = field(default_factory=UpdateSettings)
    weights: WeightSettings = field(default_factory=WeightSettings)
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    c_worker: Mapping[str, str | None] = _class()  # type "module:Class": a subclass of the documented one
    g_worker: Mapping[str, str | None] = _class()
    u_worker: Mapping[str, str | None] = _class()


def read_ray(
    system: Config, cfg: FrozenConfig, *, source: str = "the config", overrides: Mapping[str, Override] | None = None
) -> RaySettings:
    """Return the settings of a `system_config` for a compiled config. Raises ConfigError with every fault of it."""
    values, faults = check_mode(RaySettings, system, "ray", overrides)
    defaults, collect, grad = asdict(RaySettings()), values["collect"], values["grad"]
    suits = "sync" if cfg.policy.on_policy or not collect["workers"] else "async"
    defaults["collect"]["comm"], collect["comm"] = suits, collect["comm"] or suits
    faults += [*_contradictions(collect, grad, values["update"])]
    faults += without_effect(PATH, values, defaults, _idle(values))
    faults += faults_of_workers(cfg, mode="ray", collect=collect, gradient_workers=grad["workers"])
    settings = settings_of(RaySettings, values, faults, source=source, overrides=overrides)
    for kind in _CLASSES:
        worker_class(kind, settings)
    return settings


def _contradictions(collect: Mapping[str, Any], grad: Mapping[str, Any], update: Mapping[str, Any]) -> Iterator[Fault]:
    if update["decentralized"] and grad["workers"] < 2:
        text = "is True, but there are not several gradient workers that could each take the step: set grad.workers"
        yield Fault(f"{PATH}.update.decentralized", text)
    elif update["decentralized"] and grad["comm"] == "async":
        text = (
            "is True, but with grad.comm='async' the workers' gradients are not those of one step: set grad.comm='sync'"
        )
        yield Fault(f"{PATH}.update.decentralized", text)
    if collect["comm"] == "async" and collect["max_policy_lag"] == 0:
        text = (
            "is 0, but asynchronous rows are older than an update almost always: give 1 or more, or collect.comm='sync'"
        )
        yield Fault(f"{PATH}.collect.max_policy_lag", text)
    if grad["min_workers"] > max(grad["workers"], 1):
        text = f"is {grad['min_workers']}, more than grad.workers, which is {grad['workers']}"
        yield Fault(f"{PATH}.grad.min_workers", text)


def _idle(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (keys or sections, why they change nothing)."""
    collect, grad, update = values["collect"], values["grad"], values["update"]
    if values["address"] is None:
        yield ("allow_open",), "the cluster of a run of its own has a token; set address"
    fractions = ("collect.fraction_samples", "collect.fraction_workers")
    if not collect["workers"]:
        why = "collect.workers is 0: there are no collectors elsewhere"
        yield (*fractions, "collect.compress", "collect.resources"), why
        if collect["comm"] != "async":
            yield ("collect.segment_rows", "collect.max_policy_lag", "weights"), why
    elif collect["comm"] == "async":
        yield fractions, "only a synchronous round has others to wait for; set collect.comm='sync'"
    else:
        yield ("collect.segment_rows",), "in a synchronous round the workers share n_sample (or n_episode)"
        yield ("collect.max_policy_lag",), "a synchronous round is collected with the newest weights"
        if collect["workers"] == 1:
            yield fractions, "there are no other workers to wait for"
        elif collect["fraction_samples"] == 1:
            yield fractions[1:], "no worker may stop before all of its rows; set collect.fraction_samples below 1 too"
        elif collect["fraction_workers"] == 1:
            yield fractions[:1], "all workers are waited for; set collect.fraction_workers below 1 too"
    rounds = ("grad.min_workers", "grad.round_timeout_s")
    if grad["workers"] < 2:
        keys = (*rounds, "grad.max_staleness", "grad.staleness", "grad.compress", "grad.resources")
        yield keys, f"grad.workers is {grad['workers']}, so that this process computes the gradients"
    elif grad["comm"] == "async":
        yield rounds, "only synchronous gradients have rounds; set grad.comm='sync'"
        if grad["max_staleness"] is None:
            yield ("grad.staleness",), "any staleness is taken; set grad.max_staleness"
    else:
        yield ("grad.max_staleness", "grad.staleness"), "synchronous gradients are never stale; set grad.comm='async'"
    if update["decentralized"]:
        yield ("grad.min_workers", "grad.compress"), "decentralised updates need all workers, who sum among themselves"
    if not collect["workers"] and grad["workers"] < 2:
        yield ("address", "failure"), "there are no workers elsewhere"


def worker_class(kind: str, settings: RaySettings) -> type:
    """Return the class of a kind of workers, "c_worker" say. Raises ConfigError for what is no subclass of it."""
    name = getattr(settings, kind)["type"]
    return subclass_at(f"{PATH}.{kind}.type", name, getattr(schemes, _CLASSES[kind]))


def collects_here(settings: RaySettings) -> bool:
    """Return whether a run's own process collects, with the policy that learns."""
    collect = settings.collect
    return collect.workers == 0 and collect.comm != "async" and settings.grad.workers < 2


def wanted(settings: RaySettings, collectors: int, parents: int) -> list[Need]:
    """Return what workers ask a cluster for: `collectors` of each of `parents` gradient workers (0: of the driver)."""
    needs = [
        Need("collector", collectors * max(parents, 1), settings.collect.resources),
        Need("gradient worker", parents, settings.grad.resources),
    ]
    return [need for need in needs if need.number]
