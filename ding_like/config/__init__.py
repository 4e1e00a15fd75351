"""Read, check, merge, override and save configs.

A config file is Python with `main_config` and `create_config`. The defaults of the classes that `create_config` names
are the schema; every fault of a config is reported in one error.
"""

from __future__ import annotations

from ding_like.config.compile import compile_config
from ding_like.config.declarations import declared_faults, inherited_config, without_effect
from ding_like.config.read import ConfigFile, read_config, read_saved_config, save_config, save_system
from ding_like.config.report import NoEffect
from ding_like.config.tree import FrozenConfig, deep_merge, to_plain, with_objects
from ding_like.utils.registries import lazy_exports

_READ = "read_config returns main_config and create_config; its result has system_config too"
# Imported on first use.
_HOMES = {"compile_config_parallel": "ding_like.pipeline.parallel.settings"}
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "Config": "configs are dicts or EasyDicts",
    "parallel_transform": "use compile_config_parallel, which fills the system part; workers dial in, without hosts",
    "read_config_directly": _READ,
    "read_config_with_system": _READ,
    "save_config_py": "use save_config",
}

__all__ = [
    "ConfigFile",
    "FrozenConfig",
    "NoEffect",
    "compile_config",
    "compile_config_parallel",
    "declared_faults",
    "deep_merge",
    "inherited_config",
    "read_config",
    "read_saved_config",
    "save_config",
    "save_system",
    "to_plain",
    "with_objects",
    "without_effect",
]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, instead=_INSTEAD)
