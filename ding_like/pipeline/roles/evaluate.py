"""Evaluate: play fresh episodes with one version of the weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ding_like.data.records import EvalResult
from ding_like.pipeline.roles.policy_weights import PolicyWeights
from ding_like.worker import InteractionSerialEvaluator

_FINAL_EPISODES = 20
# The number of the final evaluation of a run: no stop rule has seen its episodes.
_FINAL_NUMBER = -1


class Evaluation(NamedTuple):
    """Result of an evaluation of a run."""

    stop: bool  # the mean return reached `stop_value`
    returns: Sequence[float]
    best_return: float  # mean of the best evaluation so far, this one included
    duration_s: float  # saving the best model included
    metrics: Mapping[str, float] = {}  # of the env, means over episodes


class EvaluateRole:
    """Player of the episodes of evaluations, each with the weights that it is asked for.

    `before` is called before each.
    """

    def __init__(
        self,
        evaluator: InteractionSerialEvaluator,
        weights: PolicyWeights,
        *,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._evaluator, self.weights, self._before = evaluator, weights, before or (lambda: None)

    def play(self, n_episode: int, *, number: int) -> EvalResult:
        """Return what the `n_episode` episodes of the evaluation `number` gave, with `weights.version`."""
        self._prepare()
        return self._evaluator.play(n_episode, number=number)

    def is_due(self, train_iter: int) -> bool:
        """Return whether the next evaluation of a run is due."""
        return self._evaluator.should_eval(train_iter)

    def evaluate(self, train_iter: int, env_step: int, *, save_checkpoint: Callable[[str], None]) -> Evaluation:
        """Evaluate what a learner has made until `train_iter`, log it, and save the model if it is the best."""
        started = time.perf_counter()
        self._prepare()
        stop, info = self._evaluator.eval(save_checkpoint, train_iter, env_step)
        return self._found(started, info["eval_episode_return"], info.get("metrics", {}), stop=stop)

    def final(self) -> EvalResult:
        """Return the final evaluation of a run: the last model plays episodes that no stop rule has seen."""
        return self.play(self._final_episodes, number=_FINAL_NUMBER)

    def conclude(self, train_iter: int, env_step: int, *, save_checkpoint: Callable[[str], None]) -> Evaluation:
        """Return the final evaluation; log it as those before it, and save the model if it is the best.

        It ends no run: `stop` is False.
        """
        started = time.perf_counter()
        self._prepare()
        result = self._evaluator.eval_last(
            self._final_episodes, number=_FINAL_NUMBER, train_iter=train_iter, envstep=env_step,
            save_ckpt_fn=save_checkpoint,
        )  # fmt: skip
        return self._found(started, result.returns, result.metrics)

    def _found(
        self, started: float, returns: Sequence[float], metrics: Mapping[str, float], *, stop: bool = False
    ) -> Evaluation:
        return Evaluation(stop, returns, self._evaluator.best_return, time.perf_counter() - started, metrics)

    @property
    def _final_episodes(self) -> int:
        env = self._evaluator.env
        return max(_FINAL_EPISODES, 0 if env is None else env.num_lanes)

    def _prepare(self) -> None:
        self.weights.take_asked()
        self._before()

    def close(self) -> None:
        """Close the envs; may be called again."""
        self._evaluator.close()
