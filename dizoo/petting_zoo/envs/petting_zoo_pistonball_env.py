"""Pistons that move a ball to the left, with DI-engine's keys; env type 'petting_zoo_pistonball'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import Space, spaces

from ding_like.envs.team import PettingZooTeam
from ding_like.types import Array, EnvObs
from ding_like.utils.bounds import FROM_1, Bounds
from ding_like.utils.registries import ENV_REGISTRY

_ID = "butterfly/pistonball-v6"
_SIDE = 20  # pixels; pistons are twice as wide, and their moves of 4 pixels change the mean of a square


def shrink(picture: EnvObs) -> Array:
    """Return the mean grey of each square of 20 x 20 pixels of a picture [H, W, 3], 0 to 1, as float32 [K].

    Lines at the bottom and at the right that fill no square are left out.
    """
    rows, columns = np.shape(picture)[0] // _SIDE, np.shape(picture)[1] // _SIDE
    grey = np.asarray(picture, np.float32)[: rows * _SIDE, : columns * _SIDE].mean(axis=2) / np.float32(255)
    means: Array = grey.reshape(rows, _SIDE, columns, _SIDE).mean(axis=(1, 3))
    return means.reshape(-1)


@ENV_REGISTRY.register("petting_zoo_pistonball")
class PettingZooPistonballEnv(PettingZooTeam):
    """Team of pistons, one lane: each may move down or up by 4 pixels or stay, or continuously between.

    Observations have `agents` [N, 132], what each piston sees around it, and `state` [1232], the whole field, both as
    the mean grey of squares of 20 x 20 pixels. The reward is how far the ball came to the left in the step.
    """

    config = {
        "env_family": "butterfly",
        "env_id": "pistonball_v6",
        "n_pistons": 20,
        "max_cycles": 125,
        "continuous_actions": False,
        "kwargs": {},  # further ones of PettingZoo's env, such as time_penalty
    }
    config_free: ClassVar[tuple[str, ...]] = ("kwargs",)
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {"env_id": (str,)}
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"n_pistons": FROM_1, "max_cycles": FROM_1}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        if cfg["env_family"] != "butterfly" or cfg["env_id"] != "pistonball_v6":
            yield "env_id", f"is {cfg['env_id']!r} of the family {cfg['env_family']!r}; this env is 'pistonball_v6'"

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        own = {key: merged[key] for key in ("n_pistons", "max_cycles")}
        kwargs = {**own, "continuous": merged["continuous_actions"], **merged["kwargs"]}
        given = {"env_id": _ID, "kwargs": kwargs, "team_reward": "mean"}
        super().__init__({**given, "render_mode": merged.get("render_mode")})

    def _own_state_size(self) -> int:
        return int(np.prod(self._seen_space(self._env.state_space).shape or ()))

    def _state(self, seen: Sequence[EnvObs]) -> Array:
        return shrink(self._env.state())

    def _seen_space(self, space: Space[Any]) -> Space[Any]:
        height, width = (space.shape or ())[:2]
        return spaces.Box(0, 1, ((height // _SIDE) * (width // _SIDE),), np.float32)

    def _see(self, obs: EnvObs) -> Array:
        return shrink(obs)
