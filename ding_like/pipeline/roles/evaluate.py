"""Evaluate: play fresh episodes with one version of the weights."""

from __future__ import annotations

from collections.abc import Callable

from ding_like.data.records import EvalResult
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.worker import InteractionSerialEvaluator

_FINAL_EPISODES = 20
# The number of the evaluation that is the last word on a run: its episodes are none that a stop rule has seen.
_FINAL_NUMBER = -1


class EvaluateRole:
    """Play the episodes of evaluations, each with the weights that it is asked for.

    `before` is called before each.
    """

    def __init__(
        self,
        evaluator: InteractionSerialEvaluator,
        weights: LoadedWeights,
        *,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._evaluator = evaluator
        self.weights = weights
        self._before = before

    def play(self, n_episode: int, *, number: int) -> EvalResult:
        """Return what the `n_episode` episodes of the evaluation `number` gave, with `weights.version`."""
        self.weights.take_asked()
        if self._before is not None:
            self._before()
        return self._evaluator.play(n_episode, number=number)

    def final(self, *, num_lanes: int) -> EvalResult:
        """Return the last word on a run: what the last model gives in episodes that no stop rule has seen."""
        return self.play(max(_FINAL_EPISODES, num_lanes), number=_FINAL_NUMBER)

    def close(self) -> None:
        """Close the envs; may be called again."""
        self._evaluator.close()
