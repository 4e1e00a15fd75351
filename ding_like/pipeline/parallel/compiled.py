"""Compile a parallel config, under DI-engine's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding_like.config import compile_config, deep_merge, to_plain
from ding_like.errors import ConfigError
from ding_like.pipeline.parallel.settings import SYSTEM_TEMPLATE, read_system, serial_parts, system_with_coordinator


def compile_config_parallel(
    cfg: Mapping[str, Any],
    create_cfg: Mapping[str, Any],
    system_cfg: Mapping[str, Any],
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
) -> Any:
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
    where = {
        name: value for name, value in (("host", coordinator_host), ("port", coordinator_port)) if value is not None
    }
    system = deep_merge(system_with_coordinator(create_cfg, system_cfg), {"coordinator": where} if where else {})
    main = compile_config(*serial_parts(cfg, create_cfg), seed=seed, save=save_cfg)
    read_system(system, main, in_memory=False)  # which checks it
    return EasyDict(main=to_plain(main), system=deep_merge(SYSTEM_TEMPLATE, system))
