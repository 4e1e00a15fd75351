"""Teams that spread over landmarks, with DI-engine's keys; env type 'petting_zoo' where this module is imported.

Without it, type 'petting_zoo' is `ding_like.envs.game`: games of several players.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ding_like.config import NoEffect
from ding_like.data.team import AGENTS, STATE
from ding_like.envs.team import PettingZooTeam
from ding_like.types import Array, EnvAction, EnvObs
from ding_like.utils.log import one_time_info
from ding_like.utils.registries import ENV_REGISTRY

# What these are called since the particle environments have a package of their own.
_IDS = {f"simple_spread_v{version}": "mpe2.simple_spread_v3" for version in (2, 3)}
_OWN = 4  # velocity and position, which each agent's observation begins with


@ENV_REGISTRY.register_by_import("petting_zoo")
class PettingZooEnv(PettingZooTeam):
    """Env of a team, one lane, around `simple_spread` of the particle environments.

    With `continuous_actions` an agent has five numbers from 0 to 1, with `act_scale` too from -1 to 1.

    Observations have `agents` [N, 4 + 2 L + 4 (N - 1)] and `state`, what DI-engine calls the global state: velocity and
    position of every agent, positions of the L landmarks, what agents say to each other: [4 N + 2 L + 2 N (N - 1)].
    """

    config = {
        "env_family": "mpe",
        "env_id": "simple_spread_v2",
        "n_agent": 3,
        "n_landmark": None,  # None: as many as agents, as the env has it
        "max_cycles": 25,
        "agent_obs_only": False,
        "agent_specific_global_state": False,
        "continuous_actions": False,
        "act_scale": False,
    }
    config_free: ClassVar[tuple[str, ...]] = ()
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {"env_id": (str,), "n_landmark": (int, type(None))}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        if cfg["env_family"] != "mpe" or cfg["env_id"] not in _IDS:
            yield (
                "env_id",
                f"is {cfg['env_id']!r} of the family {cfg['env_family']!r}; this env makes simple_spread_v3 of 'mpe'. "
                "Other teams: create_config.env=dict(type='joint_petting_zoo') with env.env_id='mpe2.simple_tag_v3'",
            )
        if cfg["n_landmark"] not in (None, cfg["n_agent"]):
            yield "n_landmark", f"is {cfg['n_landmark']}; the env has as many landmarks as agents, {cfg['n_agent']}"
        if cfg["act_scale"] and not cfg["continuous_actions"]:
            yield NoEffect(
                "act_scale", "is True, but actions are discrete; leave it out, or set continuous_actions=True"
            )
        if cfg["agent_obs_only"]:
            yield NoEffect(
                "agent_obs_only",
                "is True, but has no effect: policies of agents by themselves see no state; leave it out",
            )
        if cfg["agent_specific_global_state"]:
            yield NoEffect(
                "agent_specific_global_state",
                "is True, but has no effect: an agent's critic sees what the agent sees beside the state; leave it out",
            )

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        env_id = _IDS.get(merged["env_id"], merged["env_id"])
        if env_id != f"mpe2.{merged['env_id']}":
            one_time_info(f"env.env_id '{merged['env_id']}' is made as '{env_id}'")
        is_continuous = merged["continuous_actions"]
        kwargs = {"N": merged["n_agent"], "max_cycles": merged["max_cycles"], "continuous_actions": is_continuous}
        super().__init__({"env_id": env_id, "kwargs": kwargs, "render_mode": merged.get("render_mode")})
        agents, landmarks = merged["n_agent"], merged["n_agent"]
        size = agents * _OWN + 2 * landmarks + 2 * agents * (agents - 1)
        self._landmarks = landmarks
        assert isinstance(self.observation_space, spaces.Dict), "a team's observation is one"
        whole = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.observation_space = spaces.Dict({**self.observation_space.spaces, STATE: whole})
        self._range: spaces.Box | None = None  # of PettingZoo's actions, where ours are from -1 to 1
        if is_continuous and merged["act_scale"]:
            self._range = self.action_space
            self.action_space = spaces.Box(-1.0, 1.0, self._range.shape, np.float32)

    def _each_action(self, action: EnvAction) -> list[Any]:
        """Return the action of each agent, of the range that PettingZoo has."""
        if self._range is not None:
            low, high = self._range.low, self._range.high
            action = low + (np.clip(action, -1.0, 1.0) + 1.0) / 2.0 * (high - low)
        return super()._each_action(action)

    def _joint(self, seen: Sequence[EnvObs], state: Array, **outcomes: Any) -> dict[str, Array]:
        """Return what agents see, and the state of all in the order of DI-engine's documentation."""
        joint = super()._joint(seen, state, **outcomes)
        agents = joint[AGENTS]
        said = 2 * (len(agents) - 1)
        # Landmarks are seen from where an agent is: from any of them they lie at the same place.
        place = agents[0, 2:_OWN] + agents[0, _OWN : _OWN + 2 * self._landmarks].reshape(-1, 2)
        parts = (agents[:, :_OWN], place, agents[:, agents.shape[1] - said :])
        return {**joint, STATE: np.concatenate([part.reshape(-1) for part in parts])}
