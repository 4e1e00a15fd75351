"""Settings of runs on Ray, by ranks and with central inference: the sections `ray`, `ranks` and `seed`.

docs/ray.md, docs/ranks.md and docs/seed.md have what each key of a `system_config` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, TypeVar

import torch

from ding_like.comm.ray.cluster import Need, Resources
from ding_like.comm.tensors import WireDtype
from ding_like.comm.workers.failures import FailurePolicy
from ding_like.config import FrozenConfig
from ding_like.config.read import Override
from ding_like.config.report import Fault
from ding_like.config.system import (
    DEVICE,
    FRACTION,
    FROM_0,
    FROM_1,
    SECONDS,
    SECONDS_FROM_0,
    UPDATES,
    Rule,
    check_mode,
    check_section,
    settings_of,
    subclass_at,
    without_effect,
)
from ding_like.errors import ConfigError, DingError, RegistryError
from ding_like.pipeline.checks import faults_of_workers
from ding_like.policy import get_policy_cls
from ding_like.policy.base import device_named
from ding_like.types import Config as Section
from ding_like.types import Json, State
from ding_like.utils.processes import OWN_HOST, is_known, is_loopback
from ding_like.utils.registries import RANK_COLLECTOR_REGISTRY, WEIGHT_UPDATER_REGISTRY

T = TypeVar("T")

COMMUNICATION = {"sync": "synchronous", "async": "asynchronous"}
FREQUENCY = Rule("updates a second above 0, or -1 for no limit", lambda it: it == -1 or 0 < it < math.inf)
_COMPRESS = Rule("'auto', True or False", lambda it: it in ("auto", True, False))
_DEVICE = DEVICE._replace(allowed=f"None for that of policy.cuda, or {DEVICE.allowed}")
_HOST = Rule(OWN_HOST.removeprefix("give "), is_known)
_LAG = Rule("None for no limit, or 1 or more updates", lambda it: it >= 1)
_PORT = Rule("a port from 1 to 65535, or 0 for any that is free", lambda it: 0 <= it <= 65535)
_PROBABILITY = Rule("a probability from 0 to 1", lambda it: 0 <= it <= 1)
_ROWS = Rule("None, or 0 or more rows", lambda it: it >= 0)
_STEPS = Rule("1 or more env steps, or -1 for no limit", lambda it: it == -1 or it >= 1)

_CPU = torch.device("cpu")

# The classes that run, by the key of the section that names another one: dict(type="module:Class").
_RAY_CLASSES = {
    "c_worker": "ding_like.pipeline.ray.workers:CWorker",
    "g_worker": "ding_like.pipeline.ray.workers:GWorker",
    "u_worker": "ding_like.pipeline.ray.scheme:UWorker",
}
_SEED_CLASSES = {
    "trainer": "ding_like.entry.seed_entry:Trainer",
    "actor": "ding_like.pipeline.seed.actor:Actor",
    "actor_thread": "ding_like.pipeline.seed.actor:ActorThread",
    "inference_client": "ding_like.comm.zmq.inference:InferenceClient",
    "inference_proxy": "ding_like.comm.zmq.inference:InferenceProxy",
    "inference_server": "ding_like.pipeline.seed.servers:InferenceServer",
    "broadcaster": "ding_like.comm.zmq.weights:Broadcaster",
}
_OLD = "is 0, but asynchronous rows are older than an update almost always: give 1 or more, or"


def _class(name: str | None = None) -> Any:  # Any: a field of a dataclass
    return field(default_factory=lambda: {"type": name})


# --- ray


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

    def class_of(self, key: str) -> type:
        """Return the class of a kind of workers, "c_worker" say. Raises ConfigError for what is no subclass of it."""
        return subclass_at(f"system.ray.{key}.type", getattr(self, key)["type"], resolve_name(_RAY_CLASSES[key]))

    @property
    def collects_here(self) -> bool:
        """Whether a run's own process collects, with the policy that learns."""
        return self.collect.workers == 0 and self.collect.comm != "async" and self.grad.workers < 2

    def needs(self, collectors: int, parents: int) -> list[Need]:
        """Return what `collectors` of each of `parents` gradient workers (0: of the driver) ask a cluster for."""
        needs = [
            Need("collector", collectors * max(parents, 1), self.collect.resources),
            Need("gradient worker", parents, self.grad.resources),
        ]
        return [need for need in needs if need.number]


def read_ray(
    system: Section, cfg: FrozenConfig, *, source: str = "the config", overrides: Mapping[str, Override] | None = None
) -> RaySettings:
    """Return the settings of a `system_config` for a compiled config. Raises ConfigError with every fault of it."""
    values, faults = check_mode(RaySettings, system, "ray", overrides)
    defaults, collect, grad = asdict(RaySettings()), values["collect"], values["grad"]
    suits = "sync" if cfg.policy.on_policy or not collect["workers"] else "async"
    defaults["collect"]["comm"], collect["comm"] = suits, collect["comm"] or suits
    faults += _ray_contradictions(collect, grad, is_decentralized=values["update"]["decentralized"])
    faults += without_effect("system.ray", values, defaults, _ray_without_effect(values))
    faults += faults_of_workers(cfg, mode="ray", collect=collect, gradient_workers=grad["workers"])
    settings = settings_of(RaySettings, values, faults, source=source, overrides=overrides)
    for key in _RAY_CLASSES:
        settings.class_of(key)
    return settings


def _ray_contradictions(
    collect: Mapping[str, Any], grad: Mapping[str, Any], *, is_decentralized: bool
) -> Iterator[Fault]:
    if is_decentralized and grad["workers"] < 2:
        text = "is True, but there are not several gradient workers that could each take the step: set grad.workers"
        yield Fault("system.ray.update.decentralized", text)
    elif is_decentralized and grad["comm"] == "async":
        text = "is True, but with grad.comm='async' the workers' gradients are not those of one step: set"
        yield Fault("system.ray.update.decentralized", f"{text} grad.comm='sync'")
    if collect["comm"] == "async" and collect["max_policy_lag"] == 0:
        yield Fault("system.ray.collect.max_policy_lag", f"{_OLD} collect.comm='sync'")
    if grad["min_workers"] > max(grad["workers"], 1):
        text = f"is {grad['min_workers']}, more than grad.workers, which is {grad['workers']}"
        yield Fault("system.ray.grad.min_workers", text)


def _ray_without_effect(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
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


# --- seed


def _seed_failure() -> FailurePolicy:
    # Actors are cheap to start again, and a server's clients move to another meanwhile.
    return FailurePolicy(restarts_per_10min=30, start_timeout_s=60.0, step_timeout_s=60.0)


@dataclass(frozen=True)
class SeedSettings:
    """The section `seed`; `read_seed` checks it.

    `comm` "sync": each round of rows is shared by all actor threads and collected with the newest weights; "async":
    each has up to `credit` orders of `segment_rows` rows (0: as many as suit the policy) under way. Weights go out
    `broadcast_period` s after those before, 0.0: after every turn with updates.
    """

    actor_processes: Annotated[int, FROM_0] = 2
    actor_threads: Annotated[int, FROM_1] = 1
    inference_servers: Annotated[int, FROM_0] = 1
    broadcast_period: Annotated[float, SECONDS_FROM_0] = 0.0
    inference_batchsize: Annotated[int, FROM_0] = 0
    inference_delay: Annotated[float, SECONDS_FROM_0] = 0.0
    inference_device: Annotated[str, DEVICE] = "cpu"
    minimum_buffer_size: Annotated[int | None, _ROWS] = None
    max_train_frequency: Annotated[float, FREQUENCY] = -1.0
    comm: Literal["sync", "async"] = "async"
    segment_rows: Annotated[int, FROM_0] = 0
    credit: Annotated[int, FROM_1] = 2
    max_policy_lag: Annotated[int | None, UPDATES] = None
    request_timeout_s: Annotated[float, SECONDS] = 2.0
    host: Annotated[str, _HOST] = "127.0.0.1"
    port: Annotated[int, _PORT] = 0
    transport: Literal["ipc", "tcp"] = "ipc"
    key_file: str | None = None
    failure: FailurePolicy = field(default_factory=_seed_failure)
    trainer: Mapping[str, str] = _class(_SEED_CLASSES["trainer"])
    actor: Mapping[str, str] = _class(_SEED_CLASSES["actor"])
    actor_thread: Mapping[str, str] = _class(_SEED_CLASSES["actor_thread"])
    inference_client: Mapping[str, str] = _class(_SEED_CLASSES["inference_client"])
    inference_proxy: Mapping[str, str] = _class(_SEED_CLASSES["inference_proxy"])
    inference_server: Mapping[str, str] = _class(_SEED_CLASSES["inference_server"])
    broadcaster: Mapping[str, str] = _class(_SEED_CLASSES["broadcaster"])

    def class_of(self, key: str) -> type:
        """Return the class that the section names. Raises ConfigError for one that is not derived from ours."""
        return subclass_at(f"system.seed.{key}.type", getattr(self, key)["type"], resolve_name(_SEED_CLASSES[key]))

    @property
    def num_actors(self) -> int:
        """Number of actor threads on this machine."""
        return self.actor_processes * self.actor_threads


def read_seed(
    system: Section, cfg: FrozenConfig, *, source: str = "the config", overrides: Mapping[str, Override] | None = None
) -> SeedSettings:
    """Return the settings of a `system_config` for a compiled config. Raises ConfigError with every fault of it."""
    values, faults = check_mode(SeedSettings, system, "seed", overrides)
    faults += _seed_contradictions(values)
    faults += without_effect("system.seed", values, asdict(SeedSettings()), _seed_without_effect(values))
    faults += [*_faults_of_policy(cfg), *_faults_of_numbers(values, cfg)]
    if not faults:
        settings = settings_of(SeedSettings, values)
        for key, own in _SEED_CLASSES.items():
            try:
                if values[key]["type"] != own:
                    settings.class_of(key)
            except DingError as error:
                faults.append(Fault(f"system.seed.{key}.type", str(error)))
    return settings_of(SeedSettings, values, faults, source=source, overrides=overrides)


def _faults_of_policy(cfg: FrozenConfig) -> Iterator[Fault]:
    """Yield why a policy's actions cannot be chosen by central inference."""
    policy = cfg.policy
    if policy.on_policy:
        yield Fault(
            "policy.type",
            f"'{policy.type}' is on-policy: each of its rows must be of one version of the weights, and those of an "
            "inference server change between the steps of a row. Run it with `ding -m serial_onpolicy` or `ding -m "
            "ray`, or use 'impala', which corrects for older versions",
        )
    elif callable(getattr(get_policy_cls(policy), "_forward_collect", None)):
        yield Fault(
            "policy.type",
            f"'{policy.type}' acts in DI-engine's style (_forward_collect), which has no forward pass that a server "
            "could run: give it an actor (policy/forward.py), or run it with `ding -m serial`",
        )
    elif getattr(get_policy_cls(policy), "rows_need_networks", False):
        yield Fault(
            "policy.type",
            f"'{policy.type}' makes its rows by its networks (values of the critic), which actors of central inference "
            "do not have: run it with `ding -m serial` or `ding -m parallel`",
        )


def _faults_of_numbers(values: Section, cfg: FrozenConfig) -> Iterator[Fault]:
    actors = max(1, values["actor_processes"] * values["actor_threads"])
    collect = dict(
        workers=actors, comm=values["comm"], segment_rows=values["segment_rows"],
        fraction_samples=1.0, fraction_workers=1.0,
    )  # fmt: skip
    yield from faults_of_workers(cfg, mode="seed", collect=collect, gradient_workers=0, section="system.seed")
    least, stored = values["minimum_buffer_size"], cfg.policy.other.get("replay_buffer", {}).get("replay_buffer_size")
    if least is not None and stored is not None and least > stored:
        text = f"is {least}, more than the {stored} rows of policy.other.replay_buffer.replay_buffer_size: no update"
        yield Fault("system.seed.minimum_buffer_size", f"{text} would ever be taken")
    try:
        device_named(values["inference_device"])
    except ConfigError:
        text = f"is {values['inference_device']!r}, which torch does not see on this machine: set it to 'cpu'"
        yield Fault("system.seed.inference_device", text)


def _seed_contradictions(values: Section) -> Iterator[Fault]:
    for name in ("actor_processes", "inference_servers"):
        if not values[name] and values["transport"] == "ipc":
            text = "is 0, and none can join from elsewhere: give 1 or more, or system.seed.transport='tcp'"
            yield Fault(f"system.seed.{name}", text)
    if values["comm"] == "sync" and not values["actor_processes"]:
        text = "is 0, but with comm='sync' the actors of this machine share each round: give 1 or more, or comm='async'"
        yield Fault("system.seed.actor_processes", text)
    if values["comm"] == "async" and values["max_policy_lag"] == 0:
        yield Fault("system.seed.max_policy_lag", f"{_OLD} comm='sync'")
    if values["transport"] == "tcp" and values["key_file"] is None and not is_loopback(values["host"]):
        text = (
            f"is None, but {values['host']} can be reached from other machines, and without keys anyone there could "
            "send rows: make keys with `ding keys FILE --curve` and name FILE, or set system.seed.host='127.0.0.1'"
        )
        yield Fault("system.seed.key_file", text)


def _seed_without_effect(values: Section) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (keys, why they change nothing)."""
    if values["comm"] == "sync":
        yield ("broadcast_period",), "with comm='sync' each round is collected with the newest weights"
        yield ("segment_rows",), "with comm='sync' the actors share n_sample (or n_episode)"
        yield ("credit",), "with comm='sync' each actor has one order at a time"
        yield ("max_policy_lag",), "with comm='sync' each round is collected with the newest weights"
    if values["transport"] == "ipc":
        text = "transport='ipc' joins the processes of this machine by files that only its user can open"
        yield ("host", "port", "key_file"), text
    if not values["inference_servers"]:
        keys = ("inference_batchsize", "inference_delay", "inference_device")
        yield keys, "inference_servers is 0: those that join bring their own"
    if not values["actor_processes"]:
        yield ("actor_threads",), "actor_processes is 0: those that join bring their own"


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

    max_environment_steps: Annotated[int, _STEPS] = -1
    n_step: Annotated[int, FROM_1] = 3
    epsilon: Annotated[float, _PROBABILITY] = 0.1
    actor_processes: Annotated[int, FROM_1] = 1
    actor_threads: Annotated[int, FROM_1] = 4
    inference_servers: Annotated[int, FROM_1] = 1
    broadcast_period: Annotated[float, SECONDS_FROM_0] = 2.5
    inference_batchsize: Annotated[int, FROM_0] = 4
    inference_delay: Annotated[float, SECONDS_FROM_0] = 0.1
    inference_device: Annotated[torch.device | str, DEVICE] = _CPU
    minimum_buffer_size: Annotated[int, FROM_0] = 1000
    max_train_frequency: Annotated[float, FREQUENCY] = -1

    def __post_init__(self) -> None:
        values, faults = check_section(Config, "", {**asdict(self), "inference_device": str(self.inference_device)})
        if faults:
            raise ConfigError(
                f"the config of the SEED trainer: {'; '.join(f'{it.path} {it.message}' for it in faults)}."
            )
        vars(self).update(values, inference_device=self.inference_device)  # 2.0 is 2

    def replace(self, **changes: Json) -> Config:
        """Return a copy with some fields changed. Raises ConfigError for values that make no sense."""
        return replace(self, **changes)

    def system(self) -> State:
        """Return the section `seed` of a `system_config` with the same settings."""
        own = {**asdict(self), "inference_device": str(self.inference_device)}
        of_env_and_policy = ("max_environment_steps", "n_step", "epsilon")
        return {name: value for name, value in own.items() if name not in of_env_and_policy}


# --- ranks


@dataclass(frozen=True)
class RankSettings:
    """Section `ranks` of a `system_config`; times are in seconds.

    `timeout_s` is the longest wait for a rank's rows, `silent_s`, if it is shorter, that for its heartbeats and its
    answer to weights: less than the 30 s that torchrun gives rank 0 to save a point when another rank has ended.
    `segment_rows` and `max_policy_lag` are of `sync=False`.
    """

    collect_ranks: Annotated[int, FROM_1] = 2
    sync: bool = True
    segment_rows: Annotated[int, FROM_0] = 0
    max_policy_lag: Annotated[int | None, _LAG] = None
    timeout_s: Annotated[float, SECONDS] = 60.0
    silent_s: Annotated[float, SECONDS] = 20.0
    join_s: Annotated[float, SECONDS] = 120.0
    dtype: WireDtype = "exact"
    updater: Mapping[str, str] = field(default_factory=lambda: {"type": "distributed"})
    collector: Mapping[str, str] = field(default_factory=lambda: {"type": "rank"})

    @property
    def patience_s(self) -> float:
        """Seconds after which a silent rank is lost."""
        return min(self.silent_s, self.timeout_s)


def read_ranks(
    system: Section,
    cfg: FrozenConfig,
    *,
    collect_ranks: int | None = None,
    source: str = "the config",
    overrides: Mapping[str, Override] | None = None,
) -> RankSettings:
    """Return the settings of a `system_config` for a compiled config; `collect_ranks` stands in place of its own.

    Raises ConfigError with every fault of it.
    """
    values, faults = check_mode(RankSettings, system, "ranks", overrides)
    values["collect_ranks"] = values["collect_ranks"] if collect_ranks is None else collect_ranks
    collect = dict(
        workers=values["collect_ranks"], comm="sync" if values["sync"] else "async",
        segment_rows=values["segment_rows"], fraction_samples=1.0, fraction_workers=1.0,
    )  # fmt: skip
    faults += faults_of_workers(cfg, mode="ranks", collect=collect, gradient_workers=0, section="system.ranks")
    if cfg.policy.on_policy and not values["sync"]:
        text = f"is False, but '{cfg.policy.type}' learns only from rows of its newest weights: set it to True"
        faults.append(Fault("system.ranks.sync", text))
    if values["sync"]:
        why = "with sync=True all ranks share each round, with the newest weights"
        faults += without_effect(
            "system.ranks", values, asdict(RankSettings()), [(("segment_rows", "max_policy_lag"), why)]
        )
    for name, registry in (("updater", WEIGHT_UPDATER_REGISTRY), ("collector", RANK_COLLECTOR_REGISTRY)):
        try:
            registry.get(values[name]["type"])
        except RegistryError as error:
            faults.append(Fault(f"system.ranks.{name}.type", str(error)))
    return settings_of(RankSettings, values, faults, source=source, overrides=overrides)
