"""Evaluate by playing whole episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ding_like.data.env_metrics import mean_metrics
from ding_like.data.records import EvalResult
from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import ConfigError
from ding_like.types import EnvManager, EvalMode, Setting
from ding_like.utils.bounds import ANY_NUMBER, FINITE, FROM_1, Bounds
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.worker.collector.base import PolicyMode
from ding_like.worker.collector.loop import RolloutLoop, step_until
from ding_like.worker.collector.stop_rule import EpisodeQuota
from ding_like.worker.evaluator.base import EpisodeEvaluator, watch
from ding_like.worker.evaluator.monitor import VectorEvalMonitor


@SERIAL_EVALUATOR_REGISTRY.register("interaction")
class InteractionSerialEvaluator(EpisodeEvaluator):
    """Play `n_episode` episodes with the eval mode of a policy and keep the best model.

    Evaluation k of a run with seed s resets its lanes with seeds derived from (s, k), so each is on fresh episodes and
    a resumed run repeats them. An env whose quota is filled stands still: its steps are not counted.
    """

    config: dict[str, Any] = dict(
        type="interaction",
        # Updates between two evaluations.
        eval_freq=1000,
        # Keys of DI-engine's configs: see `without_effect`.
        render=dict(render_freq=-1, mode="train_iter"),
        figure_path=None,
        # Episodes of an evaluation; None: env.n_evaluator_episode.
        n_episode=None,
        # Mean return of an evaluation that ends the run; None: env.stop_value.
        stop_value=None,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "eval_freq": FROM_1,
        "render.render_freq": FINITE,
        "n_episode": FROM_1,
        "stop_value": ANY_NUMBER,
    }
    config_types = {"figure_path": (str,), "n_episode": (int,), "stop_value": (int, float)}
    without_effect: ClassVar[Mapping[str, str]] = {
        "render.render_freq": "a video of the best model is made after the run; `ding enjoy EXP` makes more",
        "render.mode": "a video of the best model is made after the run; `ding enjoy EXP` makes more",
        "figure_path": "the curve lies in the experiment's folder; `ding plot EXP --out FILE` puts it elsewhere",
    }

    _policy: EvalMode | None = None  # given as any named tuple with DI-engine's fields

    @property
    def env(self) -> EnvManager | None:
        """Return the env manager."""
        return self._env

    @property
    def policy(self) -> EvalMode | None:
        """Return the eval mode."""
        return self._policy

    def reset_policy(self, _policy: PolicyMode | None = None) -> None:
        """Evaluate another policy if one is given; forget recurrent state."""
        if _policy is not None:
            self._policy = adapt_eval_mode(_policy)
        if self._policy is not None:
            self._policy.actor.reset()

    def eval(
        self,
        save_ckpt_fn: Callable[[str], None] | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        force_render: bool = False,
        policy_kwargs: Setting | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Play the episodes, log them, and call `save_ckpt_fn('ckpt_best.pth.tar')` if the mean return is a new best.

        Returns (stop, info): stop says that the mean reached `stop_value` after training began; info holds lists by
        name, `eval_episode_return` among them, and `metrics`, the means of the env's own. `force_render` is accepted
        for DI-engine's callers: videos are made from checkpoints, in an env of their own. Raises ConfigError if the
        number of episodes is given nowhere.
        """
        n_episode = self._cfg.get("n_episode") if n_episode is None else n_episode
        if n_episode is None:
            raise ConfigError("eval() needs n_episode: pass it, or set env.n_evaluator_episode in the config.")
        result = self.play(n_episode, number=self.num_evals, policy_kwargs=policy_kwargs)
        self.num_evals += 1
        self._last_eval_iter = train_iter
        self._log(result, train_iter=train_iter, envstep=envstep)
        stop = self._conclude(result.mean, train_iter=train_iter, save_ckpt_fn=save_ckpt_fn)
        return stop, {**result.info, "eval_episode_return": result.returns, "metrics": result.metrics}

    def eval_last(
        self,
        n_episode: int,
        *,
        number: int,
        train_iter: int,
        envstep: int,
        save_ckpt_fn: Callable[[str], None] | None = None,
    ) -> EvalResult:
        """Play the closing evaluation of a run, which is on its log and counts for the best model but stops nothing.

        Where its mean equals the best one, the last model is the best: it learned longest. The evaluations that a
        resumed run goes on with are numbered as if this one had not been.
        """
        result = self.play(n_episode, number=number)
        self._log(result, train_iter=train_iter, envstep=envstep)
        self._keep_best(result.mean, save_ckpt_fn, if_equal=True)
        return result

    def play(self, n_episode: int, *, number: int, policy_kwargs: Setting | None = None) -> EvalResult:
        """Play the first `n_episode` episodes of evaluation `number` without logging them.

        `number` picks the seeds: the same number plays the same episodes where the env manager seeds lanes.
        """
        if self._env is None or self._policy is None:
            raise ConfigError("the evaluator needs an env and a policy before eval(): call reset(policy, env).")
        rng = self._rng_of(number)
        return play_episodes(
            self._env, self._policy, n_episode, rng=rng, policy_kwargs=policy_kwargs, is_leaving=self.is_leaving
        )

    def _log(self, result: EvalResult, *, train_iter: int, envstep: int) -> None:
        returns = np.array(result.returns)
        values: dict[str, float] = {
            "episode_count": len(returns),
            "envstep_count": sum(result.lengths),
            "avg_envstep_per_episode": sum(result.lengths) / len(result.lengths),
            "evaluate_time": result.duration_s,
            "avg_envstep_per_sec": result.env_steps / max(result.duration_s, 1e-9),
            "avg_time_per_episode": result.duration_s / len(returns),
            "reward_mean": float(returns.mean()),
            "reward_std": float(returns.std()),
            "reward_max": float(returns.max()),
            "reward_min": float(returns.min()),
            **result.metrics,
            **{name: value for name, value in result.info.items() if isinstance(value, float)},
        }
        self._write(values, train_iter=train_iter, envstep=envstep)


def play_episodes(
    env: EnvManager,
    policy: EvalMode,
    n_episode: int,
    *,
    rng: np.random.Generator,
    policy_kwargs: Setting | None = None,
    is_leaving: Callable[[], bool] = lambda: False,
) -> EvalResult:
    """Reset all lanes with seeds from `rng` and play the first `n_episode` episodes, each lane its share.

    Raises EvaluationStoppedError once `is_leaving` returns True.
    """
    started = time.perf_counter()
    env.reset(seeds=[int(seed) for seed in rng.integers(0, 2**31 - 1, env.num_lanes)])
    policy.actor.reset()
    loop = RolloutLoop(env, policy.actor, rng=rng, record=False)
    monitor = VectorEvalMonitor(env.num_lanes, n_episode)
    setting = dict(policy_kwargs or {})
    lengths: list[int] = []
    metrics: list[Mapping[str, float]] = []
    for ended in watch(step_until(loop, EpisodeQuota(n_episode, env.num_lanes), setting), loop, is_leaving):
        for episode in ended:
            monitor.update_reward(episode.lane, episode.return_)
            lengths.append(episode.length)
            metrics.append(episode.metrics)
            if episode.info:
                monitor.update_info(episode.lane, episode.info)
    return EvalResult(
        returns=monitor.get_episode_return(),
        lengths=lengths,
        info=monitor.get_episode_info() or {},
        env_steps=loop.env_steps,
        duration_s=time.perf_counter() - started,
        metrics=mean_metrics(metrics),
    )
