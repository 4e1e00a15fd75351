"""Envs of every style as gymnasium's, as managers step them."""

from __future__ import annotations

import gymnasium

from ding_like.envs.di_engine_style import DiEngineStyleEnv
from ding_like.envs.di_engine_team import as_team
from ding_like.envs.spaces import AnyEnv, hybrid_rows
from ding_like.envs.team import ParallelTeam
from ding_like.errors import EnvError
from ding_like.types import EnvLike


def as_gymnasium(env: EnvLike) -> AnyEnv:
    """Return `env` as a gymnasium env, adapting one in DI-engine's style, and PettingZoo's as a team.

    Raises EnvError for anything else. Of an env that shows a gymnasium env in DI-engine's style, `DingEnvWrapper`, it
    is the `gymnasium_env` inside.
    """
    env = getattr(env, "gymnasium_env", env)
    if isinstance(env, gymnasium.Env):
        return as_team(env)
    if hasattr(env, "num_players"):  # a game is its own manager's matter
        return env  # type: ignore[no-any-return]
    if hasattr(env, "possible_agents"):
        return _team_of_petting_zoo(env)
    missing = [name for name in ("reset", "step", "seed", "close") if not callable(getattr(env, name, None))]
    if missing:
        raise EnvError(
            f"{env!r} is not an environment: it lacks {', '.join(missing)}. Expected a gymnasium.Env or a BaseEnv "
            "(reset() -> obs, step(action) -> BaseEnvTimestep, seed, close)."
        )
    return as_team(DiEngineStyleEnv(env))


def _team_of_petting_zoo(env: EnvLike) -> AnyEnv:
    """Return the team of a PettingZoo env's agents. Raises EnvError where they do not act at once."""
    if hasattr(env, "agent_iter"):
        raise EnvError(
            f"the agents of {type(env).__name__} act in turn; a team acts at once. Give its parallel form, as "
            "pettingzoo.utils.aec_to_parallel makes it, or play it as a game: env type 'petting_zoo'."
        )
    return ParallelTeam(env)


def as_lane_env(env: EnvLike) -> AnyEnv:
    """Return an env as managers step it: gymnasium's, whatever its style, whose actions are rows; see `hybrid_rows`."""
    made: AnyEnv = hybrid_rows(as_gymnasium(env))
    return made
