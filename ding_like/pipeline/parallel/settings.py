"""The `system` part of a parallel config: where data lies, how many workers there are, how far they may drift apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from easydict import EasyDict

from ding_like.comm.rest.messages import ROWS_PER_SEGMENT
from ding_like.comm.tensors import WireDtype
from ding_like.config import FrozenConfig, compile_config, deep_merge, to_plain
from ding_like.config.di_engine import PARALLEL_COLLECTOR, SYSTEM, log_without_effect
from ding_like.config.report import config_error
from ding_like.config.system import FROM_1, SECONDS, check_section, settings_of
from ding_like.errors import ConfigError
from ding_like.pipeline.checks import check_buffer, steps_per_row, warmup_steps
from ding_like.pipeline.learners.synced import check_shares, timeout_fault
from ding_like.pipeline.rows import least_lead
from ding_like.types import Config, Json
from ding_like.utils.processes import make_own_folder
from ding_like.utils.registries import PARALLEL_COLLECTOR_REGISTRY, SERIAL_COLLECTOR_REGISTRY, Registry

C = TypeVar("C")

_MEMORY = Path("/dev/shm")
FILES = "files"  # in a run's folder: its rows and weights, if they are not in memory


@dataclass(frozen=True)
class CoordinatorSettings:
    """The section `coordinator`."""

    type: str = "flask_fs"  # a registered name, or "module:Class" of one's own
    import_names: list[str] = field(default_factory=list)  # modules to import first
    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    lease_ttl_s: Annotated[float, SECONDS] = 10.0
    heartbeat_s: Annotated[float, SECONDS] = 3.0
    max_failures: Annotated[int, FROM_1] = 3  # of one task, before the run ends
    # That a learner may train without publishing weights, before another takes its task.
    publish_timeout_s: Annotated[float, SECONDS] = 30.0
    # That a state file which cannot be written is waited for, before the process ends.
    state_timeout_s: Annotated[float, SECONDS] = 600.0
    durable: bool = False  # the state file survives a power cut too, and not only the process's death
    # Keys of DI-engine's configs; `lease_ttl_s` and `max_failures` replace them.
    collector_task_timeout: int = 30
    learner_task_timeout: int = 600
    operator_server: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class WeightSettings:
    """The section `weights`."""

    # How numbers travel: 'exact', or 'bfloat16': float32 parameters are rounded, to half their bytes.
    dtype: WireDtype = "exact"
    # A worker that has earlier weights is sent what has changed, if that is less; where they go by 'stream'.
    delta: bool = False


@dataclass(frozen=True)
class _Given:
    """The keys of a `system_config` of mode parallel."""

    # Folders of segments and weights; None: in memory where the system has such a folder, as a run's own.
    path_data: str | Path | None = None
    path_policy: str | Path | None = None
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    # On one machine; 0: as many as there are sections collector0, collector1..., else 2.
    num_collectors: int = 0
    num_learners: Annotated[int, FROM_1] = 1  # that share each batch, on the learner's machine
    segment_rows: int = 0  # rows that a collector sends at once; 0: n_sample, at least 64
    # Env steps that collecting may be ahead of learning; 0: a segment of each collector, and what an update needs.
    max_lead_rows: int = 0
    publish_interval_s: float = 0.2  # seconds between two published versions of the weights, at least
    weights: WeightSettings = field(default_factory=WeightSettings)
    num_batches: Annotated[int, FROM_1] = 64  # that the learner asks for at once
    # How files travel between hosts: 'shared' folders, 'stream' through the coordinator, or what 'auto' finds.
    communication_mode: str = "auto"
    learner_gpu_num: int | None = None  # of DI-engine's configs; `policy.cuda` decides whether one is used


SYSTEM_TEMPLATE: dict[str, Json] = asdict(_Given())


@dataclass(frozen=True)
class SystemConfig(_Given):
    """The checked `system` part of a config.

    With `n_episode`, `segment_rows` is 1, an order for `segment_episodes`, and `max_lead_rows` is in episodes.
    """

    path_data: Path = Path()
    path_policy: Path = Path()
    own_folder: Path | None = None  # that was made for this run, and goes with it
    segment_episodes: int = 0


def read_system(system_config: Mapping[str, Json] | None, cfg: FrozenConfig, *, in_memory: bool = True) -> SystemConfig:
    """Fill a `system_config` with defaults. Raises ConfigError with every fault of its keys and values.

    Folders that it does not name are made in memory where the system has a place for that, or, for a run that may be
    interrupted and resumed, in the experiment's folder.
    """
    given = {key: value for key, value in (system_config or {}).items() if not _is_worker(key)}
    sections = sum(key.startswith("collector") and _is_worker(key) for key in system_config or ())
    system, faults = check_section(_Given, "system", given)
    if faults:
        raise config_error(faults, "system_config", {})
    log_without_effect(given, SYSTEM_TEMPLATE, SYSTEM, source="system_config", section="system")
    num_collectors = system["num_collectors"] or sections or 2
    segment_episodes = _segment_episodes(system, cfg, num_collectors)
    segment_rows = 1 if segment_episodes else _segment_rows(system["segment_rows"], cfg, num_collectors)
    max_lead = 0
    if not cfg.policy.on_policy:
        check_buffer(cfg.policy, pipeline="mode parallel", offered=("row",), holds_rows=False)
        if segment_episodes:  # a segment of each collector, and what an update needs
            for_an_update = -(-int(cfg.policy.collect.n_episode) // int(cfg.policy.learn.update_per_collect))
            max_lead = num_collectors * segment_episodes + for_an_update
        else:
            max_lead = _lead(system["max_lead_rows"], segment_rows, num_collectors, cfg.policy)
    if system["num_learners"] > 1:
        check_shares(cfg, system["num_learners"])
        if fault := timeout_fault(cfg.learners.timeout_s):
            raise ConfigError(f"learners.timeout_s {fault}.")
    own = None
    if None in (system["path_data"], system["path_policy"]):
        is_in_memory = in_memory and _MEMORY.is_dir()
        own = make_own_folder("ding-", where=_MEMORY) if is_in_memory else Path(cfg.exp_name) / FILES
    for name in ("path_data", "path_policy"):
        system[name] = Path(system[name] or (own or Path()) / name.removeprefix("path_"))
    system.update(num_collectors=num_collectors, segment_rows=segment_rows, max_lead_rows=max_lead)
    return settings_of(SystemConfig, {**system, "own_folder": own, "segment_episodes": segment_episodes})


def class_of(
    registry: Registry[type[C]], section: Mapping[str, Json] | None, base: type[C], *, default: str = "flask_fs"
) -> type[C]:
    """Return the class that `section.type` names, a registered name or "module:Class"; without one, `default`.

    Raises RegistryError (a KeyError) for an unknown name, ConfigError for a class that is not derived from `base`.
    """
    section = section or {}
    name = section.get("type") or default
    cls = registry.get(name, section.get("import_names") or ())
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise ConfigError(
            f"{registry.name} '{name}' is {cls!r}, which is no {base.__name__}: derive it from "
            f"ding_like.worker.{base.__name__}, or from one of its sub-classes."
        )
    return cls


def system_with_coordinator(create_config: object, system_config: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return a `system_config` whose coordinator has the class that `create_config.coordinator` names, if any."""
    system = to_plain(system_config or {})
    named = create_config.get("coordinator") if isinstance(create_config, Mapping) else None
    return deep_merge({"coordinator": to_plain(named)}, system) if named else system


def serial_parts(main_config: Json, create_config: Json) -> tuple[Json, Json]:
    """Return both parts of a config of DI-engine's kind as `compile_config` takes them.

    There `create_config.collector` may name a parallel collector, which is none of the serial ones, and the class of
    the commander is apart from its settings.
    """
    if not isinstance(main_config, Mapping) or not isinstance(create_config, Mapping):
        return main_config, create_config  # compile_config reports what is wrong
    main, create = to_plain(main_config), to_plain(create_config)
    create.pop("coordinator", None)  # see `system_with_coordinator`
    collector, commander = create.get("collector"), create.pop("commander", None)
    if isinstance(collector, dict) and collector.get("type") in PARALLEL_COLLECTOR_REGISTRY:
        del create["collector"]
        log_without_effect(collector, {}, PARALLEL_COLLECTOR, source="the config", section="create_config.collector")
    if isinstance(commander, dict):
        main = deep_merge({"policy": {"other": {"commander": commander}}}, main)
    return main, create


def batch_rows(policy: FrozenConfig) -> int:
    """Return the rows of a batch that is asked for; on-policy episodes have as many as they have: 1 asks for all."""
    if policy.on_policy:
        return int(policy.collect.get("n_sample") or 1)
    return int(policy.learn.batch_size)


def buffer_size(cfg: FrozenConfig) -> int:
    """Return the rows of the coordinator's index and the learner's mirror.

    On-policy, they hold a few batches, or one of as many episodes as come: the mirror grows as far as it must.
    """
    if cfg.policy.on_policy:
        return 4 * int(cfg.policy.collect.get("n_sample") or ROWS_PER_SEGMENT // 4)
    return int(cfg.policy.other.replay_buffer.replay_buffer_size)


def _segment_episodes(system: Mapping[str, Json], cfg: FrozenConfig, num_collectors: int) -> int:
    """Return how many whole episodes a collector sends at once: its share of n_episode, one of each env at least."""
    n_episode = int(cfg.policy.collect.get("n_episode") or 0)
    if not n_episode:
        return 0
    for name in ("segment_rows", "max_lead_rows"):
        if system[name]:
            raise ConfigError(
                f"system.{name} is {system[name]}, but policy.collect.n_episode collects whole episodes, of as many "
                "rows as they have. Omit it, or give policy.collect.n_sample in place of n_episode."
            )
    collector = cfg.policy.collect.collector
    if SERIAL_COLLECTOR_REGISTRY.get(collector.type, collector.get("import_names") or ()).unit != "episodes":
        raise ConfigError(
            f"policy.collect.n_episode is {n_episode}, but policy.collect.collector.type names collector "
            f"'{collector.type}', which collects rows. Set policy.collect.collector=dict(type='episode', "
            "get_train_sample=True), or give policy.collect.n_sample in place of n_episode."
        )
    lanes = int(cfg.env.collector_env_num)
    if n_episode < lanes:
        raise ConfigError(
            f"policy.collect.n_episode is {n_episode}, fewer than the {lanes} envs of a collector, each of which plays "
            "one. Raise it, or lower env.collector_env_num."
        )
    return max(lanes, -(-n_episode // num_collectors))


def _segment_rows(given: int, cfg: FrozenConfig, num_collectors: int) -> int:
    """Return what a collector sends at once: on-policy, its share of a batch."""
    n_sample, size = int(cfg.policy.collect.get("n_sample") or 0), buffer_size(cfg)
    if n_sample < 1:
        raise ConfigError("nothing says how much is collected: give policy.collect.n_sample or n_episode.")
    if cfg.policy.on_policy:
        return min(given, n_sample) or -(-n_sample // num_collectors)
    if given > size:
        raise ConfigError(
            f"system.segment_rows is {given}, but policy.other.replay_buffer.replay_buffer_size is {size}: a segment "
            "must fit into the buffer. Set smaller segments or a larger buffer."
        )
    return given or min(max(n_sample, 64), size)


def _is_worker(key: str) -> bool:
    """Return whether a key is of DI-engine's sections of hosts and ports, which workers that dial in do not need."""
    return key.startswith(("collector", "learner")) and key not in SYSTEM_TEMPLATE


def _lead(given: int, segment_rows: int, num_collectors: int, policy: FrozenConfig) -> int:
    """Return how far collecting may be ahead, in env steps: by default each collector may be at work on a segment."""
    per_row = steps_per_row(policy)
    least = least_lead(
        warmup_steps=warmup_steps(policy),
        steps=int(policy.collect.n_sample) * per_row,
        updates=int(policy.learn.update_per_collect),
        segment_steps=segment_rows * per_row,
        batch_steps=int(policy.learn.batch_size) * per_row,
    )
    if 0 < given < least:
        raise ConfigError(
            f"system.max_lead_rows is {given}, but collectors and learner would wait for each other for ever below "
            f"{least}: a segment has {segment_rows} rows and a batch {policy.learn.batch_size}. Raise it or omit it."
        )
    return given or least + num_collectors * segment_rows * per_row


def compile_config_parallel(
    cfg: Config,
    create_cfg: Config,
    system_cfg: Config,
    seed: int = 0,
    save_cfg: bool = True,
    save_path: str = "total_config.py",
    platform: str = "local",
    coordinator_host: str | None = None,
    learner_host: str | None = None,
    collector_host: str | None = None,
    coordinator_port: int | None = None,
    learner_port: int | None = None,
    collector_port: int | None = None,
) -> EasyDict:
    """Return an EasyDict of `main`, the compiled config, and `system`, the system part with its defaults.

    `parallel_pipeline((result.main, create_cfg, result.system))` runs it. The coordinator's host and port go into
    `system.coordinator`; those of workers have no use, as workers dial in. Raises ConfigError for them, for a platform
    other than 'local', and with every fault of the config.
    """
    hosts = dict(learner_host=learner_host, collector_host=collector_host)
    ports = dict(learner_port=learner_port, collector_port=collector_port)
    if given := [name for name, value in {**hosts, **ports}.items() if value is not None]:
        raise ConfigError(f"{', '.join(given)}: workers dial in to the coordinator; leave them out.")
    if platform != "local":
        raise ConfigError(f"platform is {platform!r}, expected 'local'; `ding -m dist` runs on several machines.")
    if save_path != "total_config.py":
        raise ConfigError(f"save_path is {save_path!r}, but the config is saved as total_config.py; leave it out.")
    at = dict(host=coordinator_host, port=coordinator_port)
    at = {name: value for name, value in at.items() if value is not None}
    system = deep_merge(system_with_coordinator(create_cfg, system_cfg), {"coordinator": at} if at else {})
    main = compile_config(*serial_parts(cfg, create_cfg), seed=seed, save=save_cfg)
    read_system(system, main, in_memory=False)  # which checks it
    return EasyDict(main=to_plain(main), system=deep_merge(SYSTEM_TEMPLATE, system))
