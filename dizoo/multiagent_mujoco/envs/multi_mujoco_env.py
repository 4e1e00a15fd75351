"""Multi-agent MuJoCo (Peng et al. 2021) as gymnasium-robotics has it; env type 'mamujoco', DI-engine's 'mujoco_multi'.

https://robotics.farama.org/envs/MaMuJoCo/ lists the bodies and how each may be split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ding_like.data.team import AGENTS
from ding_like.envs.gymnasium_env import draw_without_display
from ding_like.envs.team import PettingZooTeam
from ding_like.types import Array, EnvObs
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds
from ding_like.utils.registries import ENV_REGISTRY
from dizoo.mujoco.envs.mujoco_env import keep_quiet

_MODULE = "gymnasium_robotics.envs.multiagent_mujoco.mamujoco_v1"


@ENV_REGISTRY.register("mujoco_multi")
@ENV_REGISTRY.register("mamujoco")
class MultiMujocoEnv(PettingZooTeam):
    """MuJoCo body of `scenario`, such as 'HalfCheetah', whose joints are split between agents as `agent_conf` says.

    '2x3' is two agents of three joints each, '9|8' one of nine and one of eight. Each sees its own joints and those up
    to `agent_obsk` joints away, in `agents` [N, O]; `state` is what one agent for all would see. The action is that of
    all agents in a row, [N * A], and the reward that of the body, which every agent is paid.
    A version behind the name of `scenario`, as in 'HalfCheetah-v2', is left out: the body is gymnasium's newest.
    """

    config = {
        "scenario": "HalfCheetah",
        "agent_conf": "2x3",
        "agent_obsk": 1,
        "add_agent_id": False,  # each agent sees its number too, one-hot
        "episode_limit": 1000,  # steps of an episode
        "kwargs": {},
    }
    config_free: ClassVar[tuple[str, ...]] = ("kwargs",)
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {}
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"agent_obsk": FROM_0, "episode_limit": FROM_1}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        if not re.fullmatch(r"\d+x\d+\w?|\d+(\|\d+)+", str(cfg["agent_conf"])):
            yield (
                "agent_conf",
                f"is {cfg['agent_conf']!r}; expected agents and joints of each, such as '2x3', '2x4d' or '9|8'",
            )

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        keep_quiet()
        draw_without_display()
        own = {
            "scenario": re.sub(r"-v\d+$", "", merged["scenario"]),
            "agent_conf": merged["agent_conf"],
            "agent_obsk": merged["agent_obsk"],
            "max_episode_steps": merged["episode_limit"],
        }
        given = {"env_id": _MODULE, "kwargs": {**own, **merged["kwargs"]}, "team_reward": "mean"}
        super().__init__({**given, "render_mode": merged.get("render_mode")})
        self._ids = np.eye(self.num_agents, dtype=np.float32) if merged["add_agent_id"] else None
        if self._ids is not None:
            assert isinstance(self.observation_space, spaces.Dict), "a team's observation is one"
            agents, size = self.observation_space[AGENTS].shape or ()
            wider = spaces.Box(-np.inf, np.inf, (agents, size + agents), np.float32)
            self.observation_space = spaces.Dict({**self.observation_space.spaces, AGENTS: wider})

    def _own_state_size(self) -> int:
        return len(self._env.state())  # the env has no `state_space`

    def _joint(self, seen: Sequence[EnvObs], state: Array, **outcomes: Any) -> dict[str, Array]:
        joint = super()._joint(seen, state, **outcomes)
        if self._ids is not None:
            joint[AGENTS] = np.concatenate([joint[AGENTS], self._ids], axis=1)
        return joint
