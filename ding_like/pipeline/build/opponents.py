"""Make the actors that a policy plays against in games."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ding_like.config import FrozenConfig
from ding_like.envs.manager.versus import VersusManager
from ding_like.errors import ConfigError
from ding_like.pipeline.build.envs import one_player_sees
from ding_like.pipeline.build.policies import build_policy
from ding_like.policy import Policy
from ding_like.policy.random_policy import RandomActor
from ding_like.types import Actor, EnvManager
from ding_like.utils.checkpoint import load_state


class Opponents:
    """Make the actors that a policy plays against.

    `fitted` is the policy section that `policy` was made from.
    """

    def __init__(self, fitted: Mapping[str, Any], policy: Policy) -> None:
        self._fitted = fitted
        self._policy = policy
        self._twins: dict[str, Policy] = {}  # by mode, with the weights that are being trained
        self._past: Policy | None = None

    def newest_self(self, *, mode: str = "collect") -> Actor:
        """Return an actor with the weights that are being trained; of a mode the same one each time."""
        if mode not in self._twins:
            # A policy of its own: recurrent state is kept by lane, and both play in the same lanes.
            model = self._policy.get_attribute("model")
            self._twins[mode] = build_policy(self._fitted, model=model, modes=[mode])
        actor: Actor = getattr(self._twins[mode], f"{mode}_mode").actor
        return actor

    def past_self(self, weights: Mapping[str, Any]) -> Actor:
        """Return an actor with weights of the model; the same one each time, so that there is one at a time."""
        if self._past is None:
            self._past = build_policy(self._fitted, modes=["collect"])
        self._past.collect_mode.load_state_dict({"model": weights})
        actor: Actor = self._past.collect_mode.actor
        return actor

    def face(self, env: VersusManager, name: str) -> None:
        """Let evaluations be played against 'random', 'self' or a checkpoint's path.

        Raises ConfigError if there is no such file.
        """
        env.use_opponent(self._rival(name, env))

    def _rival(self, name: str, env: VersusManager) -> Actor:
        if name == "random":
            return RandomActor(env.action_space)
        if name == "self":
            return self.newest_self(mode="eval")
        if not Path(name).is_file():
            raise ConfigError(f"env.manager.opponent is {name!r}; expected 'random', 'self' or a checkpoint's path.")
        rival = build_policy(self._fitted, modes=["eval"])
        rival.eval_mode.load_state_dict({"model": load_state(name)["model"]})
        actor: Actor = rival.eval_mode.actor
        return actor


def evaluated_env(cfg: FrozenConfig, env: EnvManager, opponents: Opponents, *, seed: int) -> EnvManager:
    """Return the envs of evaluations: games as one player sees them, against the config's opponent."""
    seen = one_player_sees(cfg, env, seed=seed, name="evaluator")
    if seen is None:
        return env
    opponents.face(seen, cfg.env.manager.opponent)
    return seen
