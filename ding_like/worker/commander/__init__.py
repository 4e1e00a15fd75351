"""Command the parts: what to collect next and with which settings, and which tasks a parallel run has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.utils.registries import COMMANDER_REGISTRY
from ding_like.worker.commander.base import BaseSerialCommander
from ding_like.worker.commander.naive import NaiveCommander, SoloCommander
from ding_like.worker.commander.one_vs_one import OneVsOneCommander


def create_parallel_commander(cfg: Mapping[str, Any], **kwargs: Any) -> NaiveCommander:
    """Build the commander that `cfg.type` (or DI-engine's `parallel_commander_type`) names; `kwargs` go to it.

    `import_names` says where it may be registered. Raises RegistryError (a KeyError) for an unknown name.
    """
    name = cfg.get("parallel_commander_type") or cfg.get("type") or "naive"
    commander: NaiveCommander = COMMANDER_REGISTRY.get(name, cfg.get("import_names") or ())(cfg, **kwargs)
    return commander


__all__ = ["BaseSerialCommander", "NaiveCommander", "OneVsOneCommander", "SoloCommander", "create_parallel_commander"]
