"""Choose the device that a policy computes on."""

from __future__ import annotations

import torch

from ding_like.errors import ConfigError


def device_of(cuda: bool | str) -> torch.device:
    """Return the device that a policy section's `cuda` asks for; of one of several GPUs it may be the name, 'cuda:1'.

    Raises ConfigError where torch sees no such GPU.
    """
    if not cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError(
            f"policy.cuda is {cuda}, but torch sees no GPU: set policy.cuda=False, or install a CUDA torch."
        )
    return device_named(cuda) if isinstance(cuda, str) else torch.device("cuda")


def device_named(name: str | torch.device) -> torch.device:
    """Return the device "cpu" or "cuda:1", say. Raises ConfigError for another name, or a GPU that is not there."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device is {name!r}; expected 'cpu', 'cuda', or one of several GPUs: 'cuda:0'.") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; expected 'cpu', 'cuda', or one of several GPUs: 'cuda:0'.")
    there = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= there:
        raise ConfigError(
            f"device is {str(device)!r}, but torch sees {there or 'no'} GPU{'s' if there > 1 else ''} here: ask for "
            "'cpu', or give the worker GPUs (num_gpus in its resources)."
        )
    return device
