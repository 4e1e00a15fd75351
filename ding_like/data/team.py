"""Form of a team: what is in the observation of agents who act at once, and its entries by name.

A team is one lane (decision 006). N is the number of agents, O the size of what one of them sees, S the size of the
state, A the number of actions of one agent. Agents that see or do less than others are padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ding_like.errors import ConfigError

# Float32 [N, O]: what each agent sees, padded with zeros; of one that has left, what it saw last.
AGENTS = "agents"
# Float32 [S]: the state of the env, which critics and mixers may see.
STATE = "state"
# Int8 [N]: 1 for agents that act at this observation, or would if the time of all were not up; what others do does not
# count.
ALIVE = "alive"
# Int8 [N]: 1 for agents that have come to an end of their own (terminated): nothing follows for them, nor is estimated.
ENDED = "ended"
# Float32 [N]: what each agent was paid in the step that led to this observation; 0 after a reset.
REWARDS = "rewards"
# Entries that say what happened: no network sees them.
OUTCOMES = (ALIVE, ENDED, REWARDS)
# Begins the names under which `info["episode_info"]` of an episode's last step has each agent's return.
RETURN_OF = "return_"


class TeamSizes(NamedTuple):
    """Sizes of a team: what one agent sees, what the state is, what one agent may do."""

    num_agents: int
    seen: int  # numbers that the env shows one agent
    state: int
    num_actions: int  # of one agent: discrete ones to choose from, or numbers of a continuous one

    @property
    def view(self) -> int:
        """Numbers of an agent's view: what it sees, and its own number, one-hot."""
        return self.seen + self.num_agents

    @classmethod
    def of(cls, obs_shape: Any, action_shape: Any, *, name: str) -> TeamSizes:  # Any: what a config may hold
        """Return the sizes of a team's observation and action. Raises ConfigError for those of anything else."""
        parts = obs_shape if isinstance(obs_shape, Mapping) else {}
        agents, state = parts.get(AGENTS), parts.get(STATE)
        if not isinstance(agents, Sequence) or len(agents) != 2 or not isinstance(state, int):
            raise ConfigError(
                f"'{name}' learns from a team: observations of agents [N, O] and state [S], got obs_shape {obs_shape}. "
                "Choose an env of a team, such as type 'joint_petting_zoo', or a policy of a single agent."
            )
        num_agents = int(agents[0])
        if isinstance(action_shape, int) and action_shape % num_agents == 0:
            return cls(num_agents, int(agents[1]), state, action_shape // num_agents)
        sizes = list(action_shape) if isinstance(action_shape, Sequence) else []
        if len(sizes) != num_agents or len(set(sizes)) != 1:
            raise ConfigError(
                f"'{name}' takes equally many actions of each of {num_agents} agents, got action_shape {action_shape}: "
                "pad the actions of those that have fewer, and mask them."
            )
        return cls(num_agents, int(agents[1]), state, int(sizes[0]))
