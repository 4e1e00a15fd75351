"""Random numbers of a run, all derived from its one seed."""

from __future__ import annotations

import copy
import random
import zlib

import numpy as np

from ding_like.errors import CheckpointError, ConfigError
from ding_like.types import State

# numpy's global generator takes 32 bits; one limit for all is easier to remember.
MAX_SEED = 2**32 - 1


def set_pkg_seed(seed: int, use_cuda: bool = False) -> None:
    """Seed the global generators of Python, numpy and torch.

    Our own code draws from generators of `make_rng`; this covers envs, user code and torch's initialisers.
    """
    import torch

    _check_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if use_cuda:
        torch.cuda.manual_seed_all(seed)


def make_rng(seed: int, *names: str) -> np.random.Generator:
    """Return the generator that belongs to `names` in a run with this `seed`.

    Equal arguments give equal streams on every machine; different names give independent ones, so a part that
    draws more does not shift the others.
    """
    _check_seed(seed)
    keys = tuple(zlib.crc32(name.encode()) for name in names)
    # PCG64 by name: `default_rng` may change its generator in a later numpy.
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=keys)))


def rng_state(rng: np.random.Generator) -> State:
    """Return a copy of the generator's state: JSON-like values, 128-bit integers among them."""
    return copy.deepcopy(dict(rng.bit_generator.state))


def set_rng_state(rng: np.random.Generator, state: State) -> None:
    """Continue `rng` where `rng_state` was taken; CheckpointError if the state is of another kind of generator."""
    kind = type(rng.bit_generator).__name__
    if state.get("bit_generator") != kind:
        raise CheckpointError(
            f"the saved random state is of {state.get('bit_generator')!r}, this run draws from {kind!r}; "
            "resume with the version that saved it, or start from the beginning"
        )
    rng.bit_generator.state = dict(state)


def global_rng_state() -> State:
    """Return the states of the generators that `set_pkg_seed` seeds, for an exact resume."""
    import torch

    return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}


def set_global_rng_state(state: State) -> None:
    """Continue the global generators where `global_rng_state` was taken."""
    import torch

    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])


def _check_seed(seed: int) -> None:
    if not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed is {seed}, expected an int from 0 to {MAX_SEED}; give another with -s")
