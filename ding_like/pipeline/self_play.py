"""Train in games of several players: against itself, or in a league of its snapshots.

Without a league one policy makes every player's moves, and learns from all of them. With one (`create_config.league`)
it learns from one player's moves; the others' are made by an opponent that the league chooses.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import torch

from ding_like.config import FrozenConfig
from ding_like.envs.manager.game import VersusManager
from ding_like.errors import ConfigError
from ding_like.league import BaseLeague, create_league
from ding_like.pipeline.envs import build_policy, one_player_sees
from ding_like.policy import Policy
from ding_like.policy.di_engine_view import RandomActor
from ding_like.types import Actor, Config, EnvManager, State
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.utils.files import atomic_write
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.seeding import make_rng

logger = logging.getLogger(__name__)

# Kinds of players that one learner can be; exploiters need another one to exploit.
_LONE_PLAYERS = ("naive_sp_player", "main_player")


class Opponents:
    """Actors that a policy plays against.

    `fitted` is the policy section that `policy` was made from.
    """

    def __init__(self, fitted: Config, policy: Policy) -> None:
        self._fitted, self._policy = fitted, policy
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

    def past_self(self, weights: Config) -> Actor:
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


def make_league(cfg: FrozenConfig, *, seed: int, **kwargs: object) -> BaseLeague:
    """Build the league of a compiled config. Raises ConfigError unless exactly one player learns, and alone can."""
    own = cfg.policy.other.league
    section = {**own, "path_policy": str(Path(cfg.exp_name, own.path_policy))}
    rng, rival = make_rng(seed, "league"), str(cfg.env.manager.opponent)
    league = create_league(section, rng=rng, eval_opponent=rival, **kwargs)
    kinds = [getattr(each, "category", "") for each in league.active_players]
    if len(kinds) != 1 or kinds[0] not in _LONE_PLAYERS:
        raise ConfigError(
            f"policy.other.league.active_players are {kinds}: a pipeline trains one player, of kind "
            f"{' or '.join(_LONE_PLAYERS)}. Leagues of several learners are built from ding_like.league."
        )
    return league


class LeaguePlay:
    """Play a league's games in a run in one process: opponents change, snapshots are taken, ratings are logged.

    `begin` or `load_state_dict` comes before the first turn.
    """

    def __init__(
        self,
        cfg: FrozenConfig,
        *,
        seed: int,
        env: VersusManager,
        policy: Policy,
        opponents: Opponents,
        metrics: MetricsSink,
    ) -> None:
        self._league = make_league(cfg, seed=seed, save_checkpoint=self._save)
        self._folder = Path(cfg.exp_name)
        self._player = self._league.active_players_ids[0]
        self._env, self._opponents, self._metrics = env, opponents, metrics
        self._model: torch.nn.Module = policy.get_attribute("model")
        self._opponent = ""
        self._results: list[int] = []

    def begin(self) -> None:
        """Take the first snapshot and choose the first opponent."""
        self._league.begin()
        self._choose()

    def turn(self, *, train_iter: int, env_step: int) -> None:
        """Take note of the games that ended; after `games_per_job` of them change the opponent."""
        self._results += self._env.take_results()
        if len(self._results) < self._league.games_per_job:
            return
        league = self._league
        league.finish_job({"player_id": [self._player, self._opponent], "result": self._results})
        league.update_active_player({"player_id": self._player, "train_iteration": train_iter})
        self._results = []
        past = league.judge_snapshot(self._player)
        if past is not None:
            logger.info("league: %s is as %s was at iteration %d", past.player_id, self._player, train_iter)
        self._tell(train_iter, env_step)
        self._choose()

    def _choose(self) -> None:
        job = self._league.get_job_info(self._player)
        self._opponent = job["player_id"][1]
        self._use_opponent(job["checkpoint_path"][1])

    def _use_opponent(self, path: str) -> None:
        if self._opponent == self._player:
            self._env.use_opponent(self._opponents.newest_self())
        else:
            self._env.use_opponent(self._opponents.past_self(load_state(path)["model"]))

    def _save(self, source: str, target: str) -> None:
        """Save the weights of the one who learns: it is the one whose snapshot is taken."""
        save_state(target, {"model": self._model.state_dict()})

    def _tell(self, train_iter: int, env_step: int) -> None:
        table = self._league.table()
        own = table[0]
        values = {"elo": own["elo"], "skill": own["skill"], "players": float(len(table))}
        if own["win_rate"] is not None:
            values["win_rate"] = own["win_rate"]
        self._metrics.write("league", values, env_step=env_step, train_iter=train_iter)
        with atomic_write(self._folder / "league.json") as file:
            file.write(json.dumps(table, indent=2).encode())

    def state_dict(self) -> State:
        """Return the league, and who plays now."""
        return {"league": self._league.state_dict(), "opponent": self._opponent, "results": list(self._results)}

    def load_state_dict(self, state: State) -> None:
        """Go on against the same opponent; its weights lie in the experiment's folder."""
        self._league.load_state_dict(state["league"])
        self._opponent, self._results = state["opponent"], list(state["results"])
        self._use_opponent(self._league.player(self._opponent).checkpoint_path)
