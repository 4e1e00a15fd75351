"""Settings of a run with central inference: `system_config['seed']`, and the document's `Config`.

docs/seed.md has what each key does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

import torch

from ding_like.comm.workers.failures import FailurePolicy
from ding_like.config import FrozenConfig
from ding_like.config.override import Override
from ding_like.config.report import Fault
from ding_like.config.system import (
    DEVICE,
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
from ding_like.errors import ConfigError, DingError
from ding_like.pipeline.checks import faults_of_workers
from ding_like.policy import get_policy_cls
from ding_like.policy.base import device_named
from ding_like.types import Config as Section
from ding_like.types import Json, State
from ding_like.utils.machine import OWN_HOST, is_known, is_loopback

PATH = "system.seed"

FREQUENCY = Rule("updates a second above 0, or -1 for no limit", lambda it: it == -1 or 0 < it < math.inf)
_PROBABILITY = Rule("a probability from 0 to 1", lambda it: 0 <= it <= 1)
_STEPS = Rule("1 or more env steps, or -1 for no limit", lambda it: it == -1 or it >= 1)
_ROWS = Rule("None, or 0 or more rows", lambda it: it >= 0)
_PORT = Rule("a port from 1 to 65535, or 0 for any that is free", lambda it: 0 <= it <= 65535)
_HOST = Rule(OWN_HOST.removeprefix("give "), is_known)

_CPU = torch.device("cpu")


def _failure() -> FailurePolicy:
    # Actors are cheap to start again, and a server's clients move to another meanwhile.
    return FailurePolicy(restarts_per_10min=30, start_timeout_s=60.0, step_timeout_s=60.0)


# The classes that run, by the key of the section that names another one: dict(type="module:Class").
_SEED = "ding_like.pipeline.seed"
CLASSES = {
    "trainer": "ding_like.entry.seed_entry:Trainer",
    "actor": f"{_SEED}.actor:Actor",
    "actor_thread": f"{_SEED}.actor:ActorThread",
    "inference_client": "ding_like.comm.zmq.inference:InferenceClient",
    "inference_proxy": "ding_like.comm.zmq.inference:InferenceProxy",
    "inference_server": f"{_SEED}.servers:InferenceServer",
    "broadcaster": "ding_like.comm.zmq.weights:Broadcaster",
}


def _named(key: str) -> Any:  # Any: a field of a dataclass
    return field(default_factory=lambda: {"type": CLASSES[key]})


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
    failure: FailurePolicy = field(default_factory=_failure)
    trainer: Mapping[str, str] = _named("trainer")
    actor: Mapping[str, str] = _named("actor")
    actor_thread: Mapping[str, str] = _named("actor_thread")
    inference_client: Mapping[str, str] = _named("inference_client")
    inference_proxy: Mapping[str, str] = _named("inference_proxy")
    inference_server: Mapping[str, str] = _named("inference_server")
    broadcaster: Mapping[str, str] = _named("broadcaster")

    def class_of(self, key: str) -> type:
        """Return the class that the section names. Raises ConfigError for one that is not derived from ours."""
        return subclass_at(f"{PATH}.{key}.type", getattr(self, key)["type"], resolve_name(CLASSES[key]))

    @property
    def num_actors(self) -> int:
        """Number of actor threads on this machine."""
        return self.actor_processes * self.actor_threads


def read_seed(
    system: Section, cfg: FrozenConfig, *, source: str = "the config", overrides: Mapping[str, Override] | None = None
) -> SeedSettings:
    """Return the settings of a `system_config` for a compiled config. Raises ConfigError with every fault of it."""
    values, faults = check_mode(SeedSettings, system, "seed", overrides)
    faults += [*_contradictions(values), *without_effect(PATH, values, asdict(SeedSettings()), _idle(values))]
    faults += [*_faults_of_policy(cfg), *_faults_of_numbers(values, cfg)]
    if not faults:
        faults += _faults_of_classes(settings_of(SeedSettings, values))
    return settings_of(SeedSettings, values, faults, source=source, overrides=overrides)


def _faults_of_classes(settings: SeedSettings) -> Iterator[Fault]:
    for key in CLASSES:
        try:
            if getattr(settings, key)["type"] != CLASSES[key]:
                settings.class_of(key)
        except DingError as error:
            yield Fault(f"{PATH}.{key}.type", str(error))


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
    yield from faults_of_workers(cfg, mode="seed", collect=collect, gradient_workers=0, section=PATH)
    least, stored = values["minimum_buffer_size"], cfg.policy.other.get("replay_buffer", {}).get("replay_buffer_size")
    if least is not None and stored is not None and least > stored:
        text = f"is {least}, more than the {stored} rows of policy.other.replay_buffer.replay_buffer_size: no update"
        yield Fault(f"{PATH}.minimum_buffer_size", f"{text} would ever be taken")
    try:
        device_named(values["inference_device"])
    except ConfigError:
        text = f"is {values['inference_device']!r}, which torch does not see on this machine: set it to 'cpu'"
        yield Fault(f"{PATH}.inference_device", text)


def _contradictions(values: Section) -> Iterator[Fault]:
    for name in ("actor_processes", "inference_servers"):
        if not values[name] and values["transport"] == "ipc":
            text = "is 0, and none can join from elsewhere: give 1 or more, or system.seed.transport='tcp'"
            yield Fault(f"{PATH}.{name}", text)
    if values["comm"] == "sync" and not values["actor_processes"]:
        text = "is 0, but with comm='sync' the actors of this machine share each round: give 1 or more, or comm='async'"
        yield Fault(f"{PATH}.actor_processes", text)
    if values["comm"] == "async" and values["max_policy_lag"] == 0:
        text = "is 0, but asynchronous rows are older than an update almost always: give 1 or more, or comm='sync'"
        yield Fault(f"{PATH}.max_policy_lag", text)
    if values["transport"] == "tcp" and values["key_file"] is None and not is_loopback(values["host"]):
        text = (
            f"is None, but {values['host']} can be reached from other machines, and without keys anyone there could "
            "send rows: make keys with `ding keys FILE --curve` and name FILE, or set system.seed.host='127.0.0.1'"
        )
        yield Fault(f"{PATH}.key_file", text)


def _idle(values: Section) -> Iterator[tuple[tuple[str, ...], str]]:
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
