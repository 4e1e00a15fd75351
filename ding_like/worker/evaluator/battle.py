"""Evaluator of games between policies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import ConfigError
from ding_like.types import EnvManager, EvalMode, Setting
from ding_like.utils.bounds import ANY_NUMBER, FROM_1, Bounds
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.worker.collector.base import PolicyMode, game_manager
from ding_like.worker.collector.battle import BattleLoop
from ding_like.worker.collector.loop import step_until
from ding_like.worker.collector.stop_rule import EpisodeQuota, episode_shares
from ding_like.worker.evaluator.base import EpisodeEvaluator, watch


@SERIAL_EVALUATOR_REGISTRY.register("battle_interaction")
@SERIAL_EVALUATOR_REGISTRY.register("interaction_1v1")
class BattleInteractionSerialEvaluator(EpisodeEvaluator):
    """Evaluator that plays `n_episode` games with a policy per player; the first player's returns decide.

    `env` is a manager of games, or DI-engine's `BaseEnvManager` over envs whose observations, rewards and infos have an
    entry for each player.

    Evaluation k of a run with seed s seeds its games from (s, k), as the evaluator of one player does. An env whose
    quota is filled stands still.
    """

    config: dict[str, Any] = dict(
        type="interaction_1v1",
        # Updates between two evaluations.
        eval_freq=50,
        # Episodes of an evaluation; None: env.n_evaluator_episode.
        n_episode=None,
        # Mean return of an evaluation that ends the run; None: env.stop_value.
        stop_value=None,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "eval_freq": FROM_1,
        "n_episode": FROM_1,
        "stop_value": ANY_NUMBER,
    }
    config_types = {"n_episode": (int,), "stop_value": (int, float)}

    _policies: Sequence[EvalMode] = ()

    def _as_manager(self, env: EnvManager) -> EnvManager:
        return game_manager(env)

    def reset_policy(self, _policy: Sequence[PolicyMode] | None = None) -> None:
        """Evaluate other policies if some are given; forget recurrent state."""
        if _policy is not None:
            if len(_policy) < 2:
                raise ConfigError(f"a battle needs two policies or more, one per player; {len(_policy)} were given.")
            self._policies = [adapt_eval_mode(mode) for mode in _policy]
        for mode in self._policies:
            mode.actor.reset()

    def eval(
        self,
        save_ckpt_fn: Callable[[str], None] | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        *,
        policy_kwargs: Setting | None = None,
    ) -> tuple[bool, list[list[dict[str, Any]]]]:
        """Play the games, log them, and call `save_ckpt_fn('ckpt_best.pth.tar')` if player 0 has a new best.

        Returns (stop, infos): stop says that player 0's mean return reached `stop_value` after training began;
        `infos[p]` has the env's `info` of each finished episode of player p, env by env, with `eval_episode_return`.
        Raises ConfigError if the number of games is given nowhere.
        """
        n_episode = self._cfg.get("n_episode") if n_episode is None else n_episode
        if n_episode is None:
            raise ConfigError("eval() needs n_episode: pass it, or set env.n_evaluator_episode in the config.")
        started = time.perf_counter()
        infos = self.play(n_episode, number=self.num_evals, policy_kwargs=policy_kwargs)
        self.num_evals += 1
        self._last_eval_iter = train_iter
        mean = float(np.mean([info["eval_episode_return"] for info in infos[0]]))
        self._log(infos, duration_s=time.perf_counter() - started, train_iter=train_iter, envstep=envstep)
        stop = self._conclude(mean, train_iter=train_iter, save_ckpt_fn=save_ckpt_fn, whose=" of player 0")
        return stop, infos

    def play(self, n_episode: int, *, number: int, policy_kwargs: Setting | None = None) -> list[list[dict[str, Any]]]:
        """Play the first `n_episode` games of evaluation `number` without logging them; return the infos by player."""
        if self._env is None or not self._policies:
            raise ConfigError("the evaluator needs an env and policies before eval(): call reset(policy, env).")
        rng = self._rng_of(number)
        env, actors = self._env, [mode.actor for mode in self._policies]
        env.reset(seeds=[int(seed) for seed in rng.integers(0, 2**31 - 1, env.num_lanes)])
        for actor in actors:
            actor.reset()
        loop = BattleLoop(env, actors, rng=rng, record=[False] * len(actors))
        quota = episode_shares(n_episode, env.num_envs)
        infos: list[list[list[dict[str, Any]]]] = [[[] for _ in quota] for _ in actors]  # by player and env
        settings = [dict(policy_kwargs or {})] * len(actors)
        for ended in watch(step_until(loop, EpisodeQuota(n_episode, env.num_envs), settings), loop, self.is_leaving):
            for by_env, mine in zip(infos, ended, strict=True):
                for episode in mine:
                    if len(by_env[episode.lane]) < quota[episode.lane]:  # one player may end before the game breaks
                        by_env[episode.lane].append(episode.final_info)
        return [[info for of_env in by_env for info in of_env] for by_env in infos]

    def _log(self, infos: list[list[dict[str, Any]]], *, duration_s: float, train_iter: int, envstep: int) -> None:
        values: dict[str, float] = {"episode_count": len(infos[0]), "evaluate_time": duration_s}
        for player, mine in enumerate(infos):
            returns = np.array([info["eval_episode_return"] for info in mine])
            if len(returns):
                values |= {f"reward{player}_mean": float(returns.mean()), f"reward{player}_std": float(returns.std())}
        self._write(values, train_iter=train_iter, envstep=envstep)
