"""Let a class keep its defaults beside its code."""

from __future__ import annotations

import copy
from typing import Any

from easydict import EasyDict


class Configurable:
    """Offer the class attribute `config` as defaults, to be merged with the user's config."""

    config: dict[str, Any] = {}

    @classmethod
    def default_config(cls) -> EasyDict:
        """Return a copy of this class's defaults, with `cfg_type` naming the class."""
        return EasyDict(copy.deepcopy(cls.config), cfg_type=f"{cls.__name__}Dict")
