"""Frozen lake as gymnasium has it; env type 'frozen_lake'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY

_MAPS = ("4x4", "8x8")


@ENV_REGISTRY.register("frozen_lake")
class FrozenLakeEnv(DiEngineGymEnv):
    """Env of FrozenLake-v1: a reward of 1 at the goal and 0 elsewhere; a hole ends the episode.

    On slippery ice a step goes to either side as often as ahead.
    """

    config = {
        **DiEngineGymEnv.config,
        "env_id": "FrozenLake-v1",
        "is_slippery": True,
        "map_name": None,  # "4x4" or "8x8"; None: that of the id
        "desc": None,  # a map of one's own: rows of S (start), F (frozen), H (hole) and G (goal)
    }
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {
        **DiEngineGymEnv.config_types,
        "map_name": (str, type(None)),
        "desc": (list, tuple, type(None)),
    }

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from super().check_config(cfg)
        if cfg["map_name"] not in (None, *_MAPS):
            yield "map_name", f"is {cfg['map_name']!r}; expected '4x4' or '8x8', or a map of your own in env.desc"
        rows = cfg["desc"]
        if rows is not None and not _is_map(rows):
            yield "desc", f"is {rows!r}; expected rows of equal length of S, F, H and G, such as ['SFF', 'FHF', 'FFG']"

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        chosen = {key: cfg[key] for key in ("map_name", "desc") if cfg[key] is not None}
        return {"is_slippery": cfg["is_slippery"], **chosen, **super().own_kwargs(cfg)}


def _is_map(rows: Any) -> bool:  # Any: what a user wrote
    are_rows = bool(rows) and all(isinstance(row, str) and row and set(row) <= set("SFHG") for row in rows)
    return are_rows and len(set(map(len, rows))) == 1 and "S" in "".join(rows)
