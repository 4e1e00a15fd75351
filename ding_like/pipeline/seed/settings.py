"""Read `system_config['seed']`: what a run with central inference is made of. docs/seed.md has what each key does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ding_like.comm.workers.failures import FailurePolicy
from ding_like.config.override import Override
from ding_like.config.report import Fault, config_error
from ding_like.config.section import check_section
from ding_like.config.seed_section import PATH, faults_together, seed_section
from ding_like.errors import ConfigError, DingError
from ding_like.pipeline.build.checks import faults_of_sections, faults_of_workers
from ding_like.policy import get_policy_cls
from ding_like.policy.device import device_named
from ding_like.utils.registry import Registry


def _failure() -> FailurePolicy:
    # Actors are cheap to start again, and a server's clients move to another meanwhile.
    return FailurePolicy(restarts_per_10min=30, start_timeout_s=60.0, step_timeout_s=60.0)


# The classes that run, by the key of the section that names another one: dict(type="module:Class").
_SEED = "ding_like.pipeline.seed"
CLASSES = {
    "trainer": "ding_like.entry.seed_trainer:Trainer",
    "actor": f"{_SEED}.actor:Actor",
    "actor_thread": f"{_SEED}.actor:ActorThread",
    "inference_client": "ding_like.comm.zmq.inference:InferenceClient",
    "inference_proxy": "ding_like.comm.zmq.proxy:InferenceProxy",
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

    actor_processes: int = 2
    actor_threads: int = 1
    inference_servers: int = 1
    broadcast_period: float = 0.0
    inference_batchsize: int = 0
    inference_delay: float = 0.0
    inference_device: str = "cpu"
    minimum_buffer_size: int | None = None
    max_train_frequency: float = -1.0
    comm: str = "async"
    segment_rows: int = 0
    credit: int = 2
    max_policy_lag: int | None = None
    request_timeout_s: float = 2.0
    host: str = "127.0.0.1"
    port: int = 0
    transport: str = "ipc"
    key_file: str | None = None
    failure: FailurePolicy = field(default_factory=_failure)
    trainer: Mapping[str, str] = _named("trainer")
    actor: Mapping[str, str] = _named("actor")
    actor_thread: Mapping[str, str] = _named("actor_thread")
    inference_client: Mapping[str, str] = _named("inference_client")
    inference_proxy: Mapping[str, str] = _named("inference_proxy")
    inference_server: Mapping[str, str] = _named("inference_server")
    broadcaster: Mapping[str, str] = _named("broadcaster")

    def class_of(self, key: str) -> Any:  # Any: a class of the user's, with the arguments of ours
        """Return the class that the section names. Raises ConfigError for one that is not derived from ours."""
        kind, ours = key.replace("_", " "), CLASSES[key]
        registry: Registry[Any] = Registry(kind, _SEED)
        found, base = registry.get(getattr(self, key)["type"]), registry.get(ours)
        if not issubclass(found, base):
            raise ConfigError(
                f"{PATH}.{key}.type is {found.__module__}:{found.__name__}, which is no {base.__name__}: derive it "
                f"from {ours.partition(':')[0]}.{base.__name__}."
            )
        return found

    @property
    def num_actors(self) -> int:
        """Return the number of actor threads on this machine."""
        return self.actor_processes * self.actor_threads


def read_seed(
    system: Mapping[str, Any], cfg: Any, *, source: str = "the config", overrides: Mapping[str, Override] | None = None
) -> SeedSettings:
    """Return the settings of a `system_config` for a compiled config. Raises ConfigError with every fault of it."""
    defaults = asdict(SeedSettings())
    values, faults = check_section(seed_section(defaults), system.get("seed") or {}, overrides)
    faults += [*faults_of_sections(system, mode="seed", section="seed"), *faults_together(values, defaults)]
    faults += [*_faults_of_policy(cfg), *_faults_of_numbers(values, cfg)]
    if not faults:
        faults += _faults_of_classes(SeedSettings(**{**values, "failure": FailurePolicy()}))
    if faults:
        raise config_error(faults, source, {path: each.text for path, each in (overrides or {}).items()})
    return SeedSettings(**{**values, "failure": FailurePolicy(**values["failure"])})


def _faults_of_classes(settings: SeedSettings) -> Iterator[Fault]:
    for key in CLASSES:
        try:
            if getattr(settings, key)["type"] != CLASSES[key]:
                settings.class_of(key)
        except DingError as error:
            yield Fault(f"{PATH}.{key}.type", str(error))


def _faults_of_policy(cfg: Any) -> Iterator[Fault]:
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


def _faults_of_numbers(values: Mapping[str, Any], cfg: Any) -> Iterator[Fault]:
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
