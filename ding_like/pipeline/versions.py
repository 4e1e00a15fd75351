"""Name the versions that a run's results may depend on."""

from __future__ import annotations

import platform

import gymnasium
import numpy as np
import torch

from ding_like import __version__


def versions() -> dict[str, str]:
    """Return the versions of what a run computes with, by name."""
    return {
        "ding_like": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    }
