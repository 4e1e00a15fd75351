"""Interface and base classes of serial evaluators."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from ding_like.errors import ConfigError, DingError
from ding_like.types import Config, EnvLike, EnvManager, PolicyLike, State
from ding_like.utils.bounds import ANY_NUMBER, FROM_1, Bounds, Configurable
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.utils.seeding import make_rng
from ding_like.worker.collector.base import EnvUser, PolicyMode
from ding_like.worker.collector.loop import SettingT, Steps


class ISerialEvaluator(Configurable, ABC):
    """Evaluator of a policy, in this process."""

    # Any: an env is a manager, or a data loader and a metric; policies and arguments of `eval` differ as well.
    @abstractmethod
    def reset_env(self, _env: EnvLike = None) -> None:
        """Evaluate in another env if one is given."""

    @abstractmethod
    def reset_policy(self, _policy: PolicyLike = None) -> None:
        """Evaluate another policy if one is given."""

    @abstractmethod
    def reset(self, _policy: PolicyLike = None, _env: EnvLike = None) -> None:
        """Reset env, policy and all counters."""

    @abstractmethod
    def close(self) -> None:
        """Close what the evaluator opened; may be called again."""

    @abstractmethod
    def should_eval(self, train_iter: int) -> bool:
        """Return whether the next evaluation is due."""

    @abstractmethod
    def eval(self, *args: Any, **kwargs: Any) -> object:
        """Evaluate once."""


def create_serial_evaluator(cfg: Config, **kwargs: object) -> ISerialEvaluator:
    """Build the evaluator that `cfg.type` names, 'interaction' by default; raises RegistryError for an unknown name."""
    evaluator: ISerialEvaluator = SERIAL_EVALUATOR_REGISTRY.build(
        cfg.get("type", "interaction"), cfg=cfg, import_names=cfg.get("import_names", ()), **kwargs
    )
    return evaluator


# An eval mode, or one for each player.
Modes: TypeAlias = "PolicyMode | Sequence[PolicyMode] | None"

logger = logging.getLogger(__name__)

EndedT = TypeVar("EndedT")
MANY_STEPS = 100_000  # without the end of an episode: a warning is due


class EvaluationStoppedError(DingError):
    """Evaluation that was broken off because the run is to end; nothing of it is kept."""


def watch(
    steps: Iterator[EndedT], loop: Steps[SettingT, EndedT], is_leaving: Callable[[], bool] = lambda: False
) -> Iterator[EndedT]:
    """Yield the steps of an evaluation by `loop`, and warn where no episode ends in 100,000 of them.

    Raises EvaluationStoppedError between two steps once `is_leaving` returns True.
    """
    since_end = 0
    for ended in steps:
        if is_leaving():
            raise EvaluationStoppedError("the evaluation was broken off: the run ends.")
        since_end = 0 if loop.ended_lanes else since_end + 1
        if since_end == MANY_STEPS:
            logger.warning(
                "evaluation: no episode has ended in %s steps, and it goes on until one does. If the env has no end of "
                "its own, give it a time limit: \"env.wrappers=[{'type': 'time_limit', 'max_episode_steps': 1000}]\"",
                f"{since_end:,}",
            )
        yield ended


class BaseSerialEvaluator(EnvUser, ISerialEvaluator):
    """Log of an evaluator and schedule of its evaluations."""

    def __init__(
        self,
        cfg: Config,
        env: EnvLike = None,  # what a sub-class evaluates in
        policy: PolicyLike = None,  # an eval mode; in battles a list of them
        tb_logger: object = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "evaluator",
    ) -> None:
        super().__init__(cfg, tb_logger, exp_name, instance_name)
        self.reset(policy, env)

    def reset(self, _policy: PolicyLike = None, _env: EnvLike = None) -> None:
        """Reset env, policy and the schedule."""
        self.reset_env(_env)
        self.reset_policy(_policy)
        self._last_eval_iter = -1

    def should_eval(self, train_iter: int) -> bool:
        """Return whether `eval_freq` iterations have passed; the first evaluation is at iteration 0."""
        if train_iter == self._last_eval_iter:
            return False
        return train_iter == 0 or train_iter - self._last_eval_iter >= self._cfg["eval_freq"]

    def _write(self, values: Mapping[str, float], *, train_iter: int, envstep: int) -> None:
        """Write what an evaluation found to the log and to the metrics."""
        line = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._logger.info("eval at iteration %d: %s", train_iter, line)
        self._metrics.write(self._instance_name, values, env_step=envstep, train_iter=train_iter)


class EpisodeEvaluator(BaseSerialEvaluator):
    """Evaluator by the returns of episodes; evaluation k of a run with seed s takes its seeds from (s, k)."""

    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "eval_freq": FROM_1,
        "n_episode": FROM_1,
        "stop_value": ANY_NUMBER,
    }
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {"n_episode": (int,), "stop_value": (int, float)}
    config: dict[str, Any] = dict(
        # Episodes of an evaluation; None: env.n_evaluator_episode.
        n_episode=None,
        # Mean return of an evaluation that ends the run; None: env.stop_value.
        stop_value=None,
    )

    def __init__(
        self,
        cfg: Config,
        env: EnvManager | None = None,
        policy: Modes = None,
        tb_logger: object = None,
        exp_name: str = "default_experiment",
        instance_name: str = "evaluator",
        *,
        seed: int = 0,
    ) -> None:
        self._seed = seed
        self.is_leaving: Callable[[], bool] = lambda: False  # whether the run is ending: an evaluation is broken off
        super().__init__(cfg, env, policy, tb_logger, exp_name, instance_name)

    def reset(self, _policy: Modes = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy, the best return and the number of the evaluation."""
        super().reset(_policy, _env)
        self.best_return = -np.inf
        self.num_evals = 0

    def _rng_of(self, number: int) -> np.random.Generator:
        """Return the generator of evaluation `number`."""
        return make_rng(self._seed, self._instance_name, str(number))

    def _num_episodes(self, given: int | None) -> int:
        """Return how many episodes to play. Raises ConfigError if neither the caller nor the config gives a number."""
        number: int | None = self._cfg.get("n_episode") if given is None else given
        if number is None:
            raise ConfigError("eval() needs n_episode: pass it, or set env.n_evaluator_episode in the config.")
        return number

    def _conclude(
        self, mean: float, *, train_iter: int, save_ckpt_fn: Callable[[str], None] | None, whose: str = ""
    ) -> bool:
        """Count an evaluation, save the model if it is the best, and return whether the run may stop."""
        self.num_evals += 1
        self._last_eval_iter = train_iter
        self._keep_best(mean, save_ckpt_fn)
        stop_value = self._cfg.get("stop_value")
        stop = stop_value is not None and mean >= stop_value and train_iter > 0
        if stop:
            self._logger.info("mean return %.4g%s reaches stop_value %.4g", mean, whose, stop_value)
        return stop

    def _keep_best(self, mean: float, save_ckpt_fn: Callable[[str], None] | None, *, if_equal: bool = False) -> None:
        """Save the model if its mean return is the best so far, or `if_equal` as good as the best."""
        if mean > self.best_return or (if_equal and mean == self.best_return):
            self.best_return = mean
            if save_ckpt_fn is not None:
                save_ckpt_fn("ckpt_best.pth.tar")

    def state_dict(self) -> State:
        """Return what an exact resume needs: evaluations are numbered, so their episodes repeat."""
        return {
            "best_return": float(self.best_return),
            "num_evals": self.num_evals,
            "last_eval_iter": self._last_eval_iter,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.best_return = state["best_return"]
        self.num_evals = state["num_evals"]
        self._last_eval_iter = state["last_eval_iter"]
