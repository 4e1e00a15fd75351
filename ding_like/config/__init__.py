"""Read, check, merge, override and save configs.

A config file is Python with `main_config` and `create_config`. The defaults of the classes that `create_config` names
are the schema; every fault of a config is reported in one error.
"""

from ding_like.config.from_classes import compile_config
from ding_like.config.frozen import FrozenConfig
from ding_like.config.objects import with_objects
from ding_like.config.read import ConfigFile, read_config
from ding_like.config.report import NoEffect
from ding_like.config.save import save_config, save_system
from ding_like.config.tree import deep_merge, to_plain

__all__ = [
    "ConfigFile",
    "FrozenConfig",
    "NoEffect",
    "compile_config",
    "deep_merge",
    "read_config",
    "save_config",
    "save_system",
    "to_plain",
    "with_objects",
]
