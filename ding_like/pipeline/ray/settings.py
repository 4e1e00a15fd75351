"""Settings of a Ray run, read from `system_config['ray']`; docs/ray.md describes each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ding_like.comm.ray.needs import Need
from ding_like.comm.workers.failures import FailurePolicy
from ding_like.comm.workers.resources import Resources
from ding_like.config.override import Override
from ding_like.config.ray_section import faults_together, ray_section
from ding_like.config.report import config_error
from ding_like.config.section import check_section
from ding_like.errors import ConfigError, RegistryError
from ding_like.pipeline import ray as schemes
from ding_like.pipeline.build.checks import faults_of_sections, faults_of_workers
from ding_like.utils.registries import Registry

COMMUNICATION = {"sync": "synchronous", "async": "asynchronous"}
_CLASSES = {"c_worker": "CWorker", "g_worker": "GWorker", "u_worker": "UWorker"}


@dataclass(frozen=True)
class CollectSettings:
    """Collectors: with 0 workers this process; `comm` None becomes what suits the policy."""

    workers: int = 2
    comm: str | None = None
    fraction_samples: float = 1.0
    fraction_workers: float = 1.0
    segment_rows: int = 0
    max_policy_lag: int | None = None
    compress: str | bool = "auto"
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class GradSettings:
    """Gradient workers, with up to 1 this process, and the limits of their gradients."""

    workers: int = 1
    comm: str = "sync"
    min_workers: int = 1
    round_timeout_s: float = 60.0
    max_staleness: int | None = None
    staleness: str = "drop"
    compress: bool = False
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class UpdateSettings:
    """Place where updates are applied: `device` None is that of `policy.cuda`."""

    decentralized: bool = False
    device: str | None = None


@dataclass(frozen=True)
class WeightSettings:
    """Number of updates after which collectors are sent new weights."""

    interval: int = 1


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
    system: Mapping[str, Any], cfg: Any, *, source: str = "the config", overrides: Mapping[str, Override] | None = None
) -> RaySettings:
    """Return the settings of a `system_config` for a compiled config. Raises ConfigError with every fault of it."""
    defaults = asdict(RaySettings())
    values, faults = check_section(ray_section(defaults), system.get("ray") or {}, overrides)
    collect, grad = values["collect"], values["grad"]
    suits = "sync" if cfg.policy.on_policy or not collect["workers"] else "async"
    defaults["collect"]["comm"], collect["comm"] = suits, collect["comm"] or suits
    faults += [*faults_of_sections(system, mode="ray", section="ray"), *faults_together(values, defaults)]
    faults += faults_of_workers(cfg, mode="ray", collect=collect, gradient_workers=grad["workers"])
    if faults:
        raise config_error(faults, source, {path: each.text for path, each in (overrides or {}).items()})
    collect["resources"], grad["resources"] = Resources(**collect["resources"]), Resources(**grad["resources"])
    settings = RaySettings(
        **{
            **values, "collect": CollectSettings(**collect), "grad": GradSettings(**grad),
            "update": UpdateSettings(**values["update"]), "weights": WeightSettings(**values["weights"]),
            "failure": FailurePolicy(**values["failure"]),
        }
    )  # fmt: skip
    for kind in _CLASSES:
        worker_class(kind, settings)
    return settings


def worker_class(kind: str, settings: RaySettings) -> Any:  # Any: a class of the kind's module
    """Return the class of a kind of workers, "c_worker" say. Raises ConfigError for what is no subclass of it."""
    base, name = getattr(schemes, _CLASSES[kind]), getattr(settings, kind)["type"]
    if name is None:
        return base
    registry: Registry[Any] = Registry(kind, "ding_like.pipeline.ray")
    try:
        found = registry.get(name)
    except RegistryError as error:
        raise ConfigError(f"system.ray.{kind}.type: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"system.ray.{kind}.type is '{name}', which is no subclass of {_CLASSES[kind]}.")
    return found


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
