"""Form of a team: what is in the observation of agents who act at once, and its entries by name.

A team is one lane (decision 006). N is the number of agents, O the size of what one of them sees, S the size of the
state, A the number of actions of one agent. Agents that see or do less than others are padded.
"""

from __future__ import annotations

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
