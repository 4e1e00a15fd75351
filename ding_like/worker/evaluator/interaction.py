"""Evaluate by playing whole episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.data.records import EvalResult
from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import ConfigError
from ding_like.types import EnvManager, EvalMode, State
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.metrics import as_metrics_writer
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.utils.seeding import make_rng
from ding_like.worker.collector.loop import RolloutLoop
from ding_like.worker.evaluator.interface import ISerialEvaluator
from ding_like.worker.evaluator.monitor import VectorEvalMonitor


@SERIAL_EVALUATOR_REGISTRY.register("interaction")
class InteractionSerialEvaluator(ISerialEvaluator):
    """Play `n_episode` episodes with the eval mode of a policy and keep the best model.

    Evaluation k of a run with seed s resets its lanes with seeds derived from (s, k), so each is on fresh episodes and
    a resumed run repeats them. An env whose quota is filled stands still: its steps are not counted.
    """

    config: dict[str, Any] = dict(
        type="interaction",
        # Learner iterations between two evaluations.
        eval_freq=1000,
        # Accepted for the seed's configs; videos are made from checkpoints after the run.
        render=dict(render_freq=-1, mode="train_iter"),
        figure_path=None,
        # Filled from env.n_evaluator_episode and env.stop_value.
        n_episode=None,
        stop_value=None,
    )
    config_types = {"figure_path": (str,), "n_episode": (int,), "stop_value": (int, float)}

    def __init__(
        self,
        cfg: Mapping[str, Any],
        env: EnvManager | None = None,
        policy: Any = None,  # an eval mode, ours or any named tuple with the seed's fields
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
        self._policy: EvalMode | None = None
        self._closed = False
        self.reset(policy, env)

    @property
    def env(self) -> EnvManager | None:
        """Return the env manager."""
        return self._env

    @property
    def policy(self) -> EvalMode | None:
        """Return the eval mode."""
        return self._policy

    def reset_env(self, _env: EnvManager | None = None) -> None:
        """Evaluate in another env manager if one is given; every evaluation resets it anyway."""
        if _env is not None:
            self._env = _env
            self._env.launch()

    def reset_policy(self, _policy: Any = None) -> None:
        """Evaluate another policy if one is given; forget recurrent state."""
        if _policy is not None:
            self._policy = adapt_eval_mode(_policy)
        if self._policy is not None:
            self._policy.actor.reset()

    def reset(self, _policy: Any = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy, the best return and the number of the evaluation."""
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
        force_render: bool = False,
        policy_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Play the episodes, log them, and call `save_ckpt_fn('ckpt_best.pth.tar')` if the mean return is a new best.

        Returns (stop, info): stop says that the mean reached `stop_value` after training began; info holds lists by
        name, `eval_episode_return` among them. `force_render` is accepted for the seed's callers: videos are made from
        checkpoints, in an env of their own. Raises ConfigError if nobody says how many episodes.
        """
        n_episode = self._cfg.get("n_episode") if n_episode is None else n_episode
        if n_episode is None:
            raise ConfigError("eval() needs n_episode: pass it, or set env.n_evaluator_episode in the config.")
        result = self.play(n_episode, number=self.num_evals, policy_kwargs=policy_kwargs)
        self.num_evals += 1
        self._last_eval_iter = train_iter
        self._log(result, train_iter=train_iter, envstep=envstep)
        if result.mean > self.best_return:
            self.best_return = result.mean
            if save_ckpt_fn is not None:
                save_ckpt_fn("ckpt_best.pth.tar")
        stop_value = self._cfg.get("stop_value")
        stop = stop_value is not None and result.mean >= stop_value and train_iter > 0
        if stop:
            self._logger.info("mean return %.4g reaches stop_value %.4g", result.mean, stop_value)
        return stop, {**result.info, "eval_episode_return": result.returns}

    def play(self, n_episode: int, *, number: int, policy_kwargs: Mapping[str, Any] | None = None) -> EvalResult:
        """Play the first `n_episode` episodes of evaluation `number` without logging them.

        `number` picks the seeds: the same number plays the same episodes where the env manager seeds lanes.
        """
        if self._env is None or self._policy is None:
            raise ConfigError("the evaluator needs an env and a policy before eval(): call reset(policy, env).")
        rng = make_rng(self._seed, self._instance_name, str(number))
        return play_episodes(self._env, self._policy, n_episode, rng=rng, policy_kwargs=policy_kwargs)

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
            **{name: value for name, value in result.info.items() if isinstance(value, float)},
        }
        line = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._logger.info("eval at iteration %d: %s", train_iter, line)
        self._metrics.write(self._instance_name, values, env_step=envstep, train_iter=train_iter)

    def state_dict(self) -> State:
        """Return what an exact resume needs: evaluations are numbered, so their episodes repeat."""
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


def play_episodes(
    env: EnvManager,
    policy: EvalMode,
    n_episode: int,
    *,
    rng: np.random.Generator,
    policy_kwargs: Mapping[str, Any] | None = None,
) -> EvalResult:
    """Reset all lanes with seeds from `rng` and play the first `n_episode` episodes, each lane its share."""
    started = time.perf_counter()
    env.reset(seeds=[int(seed) for seed in rng.integers(0, 2**31 - 1, env.num_lanes)])
    policy.actor.reset()
    loop = RolloutLoop(env, policy.actor, rng=rng, record=False)
    monitor = VectorEvalMonitor(env.num_lanes, n_episode)
    setting = dict(policy_kwargs or {})
    lengths: list[int] = []
    while not monitor.is_finished():
        for episode in loop.step(setting, idle=monitor.is_full()):
            monitor.update_reward(episode.lane, episode.return_)
            lengths.append(episode.length)
            if episode.info:
                monitor.update_info(episode.lane, episode.info)
    return EvalResult(
        returns=monitor.get_episode_return(),
        lengths=lengths,
        info=monitor.get_episode_info() or {},
        env_steps=loop.env_steps,
        duration_s=time.perf_counter() - started,
    )
