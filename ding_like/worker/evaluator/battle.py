"""Evaluate a policy by whole games against others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import ConfigError
from ding_like.types import EnvManager, EvalMode, State
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.metrics import as_metrics_writer
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.utils.seeding import make_rng
from ding_like.worker.collector.battle_loop import BattleLoop
from ding_like.worker.evaluator.interface import ISerialEvaluator
from ding_like.worker.evaluator.monitor import VectorEvalMonitor


@SERIAL_EVALUATOR_REGISTRY.register("interaction_1v1")
class BattleInteractionSerialEvaluator(ISerialEvaluator):
    """Play `n_episode` games with a policy per player; the first one's returns decide.

    Evaluation k of a run with seed s seeds its games from (s, k), as the evaluator of one player does. An env whose
    quota is filled stands still.
    """

    config: dict[str, Any] = dict(
        type="interaction_1v1",
        # Learner iterations between two evaluations.
        eval_freq=50,
        # Filled from env.n_evaluator_episode and env.stop_value.
        n_episode=None,
        stop_value=None,
    )
    config_types = {"n_episode": (int,), "stop_value": (int, float)}

    def __init__(
        self,
        cfg: Mapping[str, Any],
        env: EnvManager | None = None,
        policy: Any = None,  # a list of eval modes, one per player
        tb_logger: Any = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "evaluator",
        *,
        seed: int = 0,
    ) -> None:
        self._cfg = cfg
        self._seed = seed
        self._instance_name = instance_name
        self._logger, _ = build_logger(Path(exp_name, "log", instance_name), instance_name)
        self._metrics = as_metrics_writer(tb_logger)
        self._env: EnvManager | None = None
        self._policies: list[EvalMode] = []
        self._closed = False
        self.reset(policy, env)

    def reset_env(self, _env: EnvManager | None = None) -> None:
        """Evaluate in another env manager if one is given; every evaluation resets it anyway."""
        if _env is not None:
            self._env = _env
            self._env.launch()

    def reset_policy(self, _policy: Sequence[Any] | None = None) -> None:
        """Evaluate other policies if some are given; forget recurrent state."""
        if _policy is not None:
            if len(_policy) < 2:
                raise ConfigError(f"a battle needs two policies or more, one per player; {len(_policy)} were given.")
            self._policies = [adapt_eval_mode(mode) for mode in _policy]
        for mode in self._policies:
            mode.actor.reset()

    def reset(self, _policy: Sequence[Any] | None = None, _env: EnvManager | None = None) -> None:
        """Reset env, policies, the best return and the number of the evaluation."""
        self.reset_env(_env)
        self.reset_policy(_policy)
        self.best_return = -np.inf
        self.num_evals = 0
        self._last_eval_iter = -1

    def should_eval(self, train_iter: int) -> bool:
        """Tell whether `eval_freq` iterations have passed; the first evaluation is at iteration 0."""
        if train_iter == self._last_eval_iter:
            return False
        return train_iter == 0 or train_iter - self._last_eval_iter >= self._cfg["eval_freq"]

    def eval(
        self,
        save_ckpt_fn: Callable[[str], None] | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        *,
        policy_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[bool, list[dict[str, Any]]]:
        """Play the games, log them, and call `save_ckpt_fn('ckpt_best.pth.tar')` if player 0 has a new best.

        Returns (stop, [info of each player]): stop says that player 0's mean return reached `stop_value` after training
        began; info holds lists by name, `eval_episode_return` among them. Raises ConfigError if nobody says how many.
        """
        n_episode = self._cfg.get("n_episode") if n_episode is None else n_episode
        if n_episode is None:
            raise ConfigError("eval() needs n_episode: pass it, or set env.n_evaluator_episode in the config.")
        started = time.perf_counter()
        infos = self.play(n_episode, number=self.num_evals, policy_kwargs=policy_kwargs)
        self.num_evals += 1
        self._last_eval_iter = train_iter
        mean = float(np.mean(infos[0]["eval_episode_return"]))
        self._log(infos, duration_s=time.perf_counter() - started, train_iter=train_iter, envstep=envstep)
        if mean > self.best_return:
            self.best_return = mean
            if save_ckpt_fn is not None:
                save_ckpt_fn("ckpt_best.pth.tar")
        stop_value = self._cfg.get("stop_value")
        stop = stop_value is not None and mean >= stop_value and train_iter > 0
        if stop:
            self._logger.info("mean return %.4g of player 0 reaches stop_value %.4g", mean, stop_value)
        return stop, infos

    def play(
        self, n_episode: int, *, number: int, policy_kwargs: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Play the first `n_episode` games of evaluation `number` without logging them; return each player's info."""
        if self._env is None or not self._policies:
            raise ConfigError("the evaluator needs an env and policies before eval(): call reset(policy, env).")
        rng = make_rng(self._seed, self._instance_name, str(number))
        env, actors = self._env, [mode.actor for mode in self._policies]
        env.reset(seeds=[int(seed) for seed in rng.integers(0, 2**31 - 1, env.num_lanes)])
        for actor in actors:
            actor.reset()
        loop = BattleLoop(env, actors, rng=rng, record=[False] * len(actors))
        games = env.num_envs
        monitors = [VectorEvalMonitor(games, n_episode) for _ in actors]
        settings = [dict(policy_kwargs or {})] * len(actors)
        ended = np.zeros(games, np.int64)
        quota = np.array([n_episode // games + (game < n_episode % games) for game in range(games)])
        while (ended < quota).any():
            new = loop.step(settings, idle=ended >= quota)
            for monitor, mine in zip(monitors, new, strict=True):
                for episode in mine:
                    monitor.update_reward(episode.lane, episode.return_)
                    if episode.info:
                        monitor.update_info(episode.lane, episode.info)
            ended[loop.ended_games] += 1
        return [
            {**(monitor.get_episode_info() or {}), "eval_episode_return": monitor.get_episode_return()}
            for monitor in monitors
        ]

    def _log(self, infos: list[dict[str, Any]], *, duration_s: float, train_iter: int, envstep: int) -> None:
        values: dict[str, float] = {
            "episode_count": len(infos[0]["eval_episode_return"]),
            "evaluate_time": duration_s,
        }
        for player, info in enumerate(infos):
            returns = np.array(info["eval_episode_return"])
            if len(returns):
                values |= {f"reward{player}_mean": float(returns.mean()), f"reward{player}_std": float(returns.std())}
        line = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._logger.info("eval at iteration %d: %s", train_iter, line)
        self._metrics.write(self._instance_name, values, env_step=envstep, train_iter=train_iter)

    def state_dict(self) -> State:
        """Return what an exact resume needs: evaluations are numbered, so their games repeat."""
        return {
            "best_return": float(self.best_return),
            "num_evals": self.num_evals,
            "last_eval_iter": self._last_eval_iter,
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self.best_return = state["best_return"]
        self.num_evals = state["num_evals"]
        self._last_eval_iter = state["last_eval_iter"]

    def close(self) -> None:
        """Close the env manager and the text log; may be called again."""
        if self._closed:
            return
        self._closed = True
        if self._env is not None:
            self._env.close()
        close_logger(self._logger)

    def __del__(self) -> None:
        # A constructor that raised has set nothing yet.
        if hasattr(self, "_closed"):
            self.close()
