"""Evaluators of a policy: on fresh episodes or games, or on a data set."""

from __future__ import annotations

import logging
import numbers
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, ClassVar, SupportsFloat, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch

from ding_like.data.records import EvalResult, mean_metrics
from ding_like.data.rows import EvalMode, adapt_eval_mode
from ding_like.data.team import RETURN_OF
from ding_like.errors import ConfigError, DingError
from ding_like.types import Array, Config, EnvLike, EnvManager, Info, PolicyLike, Setting, State
from ding_like.utils.bounds import ANY_NUMBER, FINITE, FROM_1, Bounds, Configurable
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.utils.seeding import make_rng
from ding_like.worker.collector.base import EnvUser, PolicyMode, game_manager, reward_stats
from ding_like.worker.collector.battle import BattleLoop
from ding_like.worker.collector.loop import EpisodeQuota, RolloutLoop, SettingT, Steps, episode_shares, step_until


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


# Saves the model under a file name; None: it is not saved.
SaveModel: TypeAlias = "Callable[[str], None] | None"
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
        *,
        seed: int = 0,  # of the episodes
    ) -> None:
        self._seed = seed
        self.is_leaving: Callable[[], bool] = lambda: False  # whether the run is ending: an evaluation is broken off
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

    config_bounds: ClassVar[Mapping[str, Bounds]] = {"eval_freq": FROM_1, "n_episode": FROM_1, "stop_value": ANY_NUMBER}
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {"n_episode": (int,), "stop_value": (int, float)}
    config: dict[str, Any] = dict(
        # Episodes of an evaluation; None: env.n_evaluator_episode.
        n_episode=None,
        # Mean return of an evaluation that ends the run; None: env.stop_value.
        stop_value=None,
    )

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

    def _conclude(self, mean: float, train_iter: int, save_ckpt_fn: SaveModel, *, whose: str = "") -> bool:
        """Count an evaluation, save the model if it is the best, and return whether the run may stop."""
        self.num_evals += 1
        self._last_eval_iter = train_iter
        self._keep_best(mean, save_ckpt_fn)
        stop_value = self._cfg.get("stop_value")
        stop = stop_value is not None and mean >= stop_value and train_iter > 0
        if stop:
            self._logger.info("mean return %.4g%s reaches stop_value %.4g", mean, whose, stop_value)
        return stop

    def _keep_best(self, mean: float, save_ckpt_fn: SaveModel, *, if_equal: bool = False) -> None:
        """Save the model if its mean return is the best so far, or `if_equal` as good as the best."""
        if mean > self.best_return or (if_equal and mean == self.best_return):
            self.best_return = mean
            if save_ckpt_fn is not None:
                save_ckpt_fn("ckpt_best.pth.tar")

    def state_dict(self) -> State:
        """Return what an exact resume needs: evaluations are numbered, so their episodes repeat."""
        counts = {"num_evals": self.num_evals, "last_eval_iter": self._last_eval_iter}
        return {"best_return": float(self.best_return), **counts}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.best_return, self.num_evals = state["best_return"], state["num_evals"]
        self._last_eval_iter = state["last_eval_iter"]


class VectorEvalMonitor:
    """Results of the *first* episodes of each env until its quota is full, so that short ones are not preferred.

    With n_episode episodes over env_num envs, each env gives n_episode // env_num, the first envs one more where that
    does not divide evenly. Raises ConfigError if there are fewer episodes than envs.
    """

    def __init__(self, env_num: int, n_episode: int) -> None:
        self._quota = episode_shares(n_episode, env_num)
        self._returns: list[list[float]] = [[] for _ in range(env_num)]
        self._info: list[list[Mapping[str, object]]] = [[] for _ in range(env_num)]
        self._open_frames: list[list[Array]] = [[] for _ in range(env_num)]  # of episodes under way
        self._videos: list[list[list[Array]]] = [[] for _ in range(env_num)]

    def is_finished(self) -> bool:
        """Return whether every env has filled its quota."""
        return bool(self.is_full().all())

    def is_full(self) -> Array:
        """Return bool[E]: the envs whose quota is filled, which need not be stepped."""
        return np.array([len(mine) == quota for mine, quota in zip(self._returns, self._quota, strict=True)])

    def update_reward(self, env_id: int, reward: SupportsFloat) -> None:
        """Take the return of one finished episode, a number or an array of one; ignored once the quota is full."""
        if len(self._returns[env_id]) < self._quota[env_id]:
            self._returns[env_id].append(float(cast(SupportsFloat, _plain(reward))))
            self._videos[env_id].append(self._open_frames[env_id])
            self._open_frames[env_id] = []

    def update_info(self, env_id: int, info: Mapping[str, object]) -> None:
        """Take the info of one finished episode, tensors as numbers or lists; ignored once the quota is full."""
        if len(self._info[env_id]) < self._quota[env_id]:
            self._info[env_id].append({name: _plain(value) for name, value in info.items()})

    def update_video(self, imgs: Sequence[npt.ArrayLike] | Mapping[int, npt.ArrayLike]) -> None:
        """Take a picture [H, W, C] of each env's episode under way, in a list of all or by env id.

        Those of envs that are full are ignored. Raises ConfigError for an env that there is none of.
        """
        by_env = imgs if isinstance(imgs, Mapping) else dict(enumerate(imgs))
        unknown = sorted(by_env.keys() - range(len(self._quota)))
        if unknown:
            raise ConfigError(f"pictures are of envs {unknown}; this monitor has envs 0 to {len(self._quota) - 1}.")
        for env_id, image in by_env.items():
            if len(self._returns[env_id]) < self._quota[env_id]:
                self._open_frames[env_id].append(np.asarray(image, np.uint8))

    def get_video(self) -> Array:
        """Return the worst, the median and the best episode by return: uint8 [N, T, C, H, W], N up to 4.

        Of four or more episodes both medians are shown; the last picture of a shorter episode is repeated.
        Raises ConfigError if no pictures were taken.
        """
        pairs = [
            (value, frames)
            for returns, videos in zip(self._returns, self._videos, strict=True)
            for value, frames in zip(returns, videos, strict=True)
            if frames
        ]
        if not pairs:
            raise ConfigError("there is no video: give update_video a picture of each env before its episode ends.")
        pairs.sort(key=lambda pair: pair[0])
        last = len(pairs) - 1
        chosen = sorted({0, last // 2, last} if last < 3 else {0, last // 2, (last + 1) // 2, last})
        videos = [pairs[index][1] for index in chosen]
        longest = max(map(len, videos))
        padded = np.stack([np.stack(frames + frames[-1:] * (longest - len(frames))) for frames in videos])
        return np.ascontiguousarray(padded.transpose(0, 1, 4, 2, 3))

    def get_latest_reward(self, env_id: int) -> float:
        """Return the return of the newest episode of one env."""
        return self._returns[env_id][-1]

    def get_current_episode(self) -> int:
        """Return how many episodes are in."""
        return sum(len(mine) for mine in self._returns)

    def get_episode_return(self) -> list[float]:
        """Return all returns, env by env."""
        return [value for mine in self._returns for value in mine]

    def get_episode_info(self) -> dict[str, object] | None:
        """Return lists of the infos by name, with `<name>_mean` for numbers; None if the envs gave none."""
        infos = [info for mine in self._info for info in mine]
        if not infos:
            return None
        merged: dict[str, object] = {}
        for name in infos[0]:
            values = [info[name] for info in infos if name in info]
            merged[name] = values
            if all(isinstance(value, numbers.Number) for value in values):
                merged[f"{name}_mean"] = float(np.mean(cast(list[float], values)))
        return merged


def _plain(value: object) -> object:
    """Return a tensor or an array as a number or a list of them, also in lists and dicts; anything else as it is."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    to_list = getattr(value, "tolist", None)
    if to_list is None:
        return value
    values: object = to_list()
    if isinstance(values, list) and len(values) == 1 and not isinstance(values[0], list):
        return values[0]  # envs may report a number as an array [1]
    return values


@SERIAL_EVALUATOR_REGISTRY.register("interaction")
class InteractionSerialEvaluator(EpisodeEvaluator):
    """Evaluator that plays `n_episode` episodes with the eval mode of a policy and keeps the best model.

    Evaluation k of a run with seed s resets its lanes with seeds derived from (s, k), so each is on fresh episodes and
    a resumed run repeats them. An env whose quota is filled is not stepped.
    """

    config: dict[str, Any] = dict(
        **EpisodeEvaluator.config,
        type="interaction",
        # Updates between two evaluations.
        eval_freq=1000,
        # Keys of DI-engine's configs: see `without_effect`.
        render=dict(render_freq=-1, mode="train_iter"),
        figure_path=None,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"render.render_freq": FINITE}
    config_types = {**EpisodeEvaluator.config_types, "figure_path": (str,)}
    without_effect: ClassVar[Mapping[str, str]] = {
        "render.render_freq": "a video of the best model is made after the run; `ding enjoy EXP` makes more",
        "render.mode": "a video of the best model is made after the run; `ding enjoy EXP` makes more",
        "figure_path": "the curve lies in the experiment's folder; `ding plot EXP --out FILE` puts it elsewhere",
    }

    _policy: EvalMode | None = None  # given as any named tuple with DI-engine's fields
    # Mean returns of a random policy and of an expert: the scores 0 and 100 of the metric `normalized_score`.
    reference: tuple[float, float] | None = None

    @property
    def env(self) -> EnvManager | None:
        """The env manager."""
        return self._env

    def reset_policy(self, _policy: PolicyMode | None = None) -> None:
        """Evaluate another policy if one is given; forget recurrent state."""
        if _policy is not None:
            self._policy = adapt_eval_mode(_policy)
        if self._policy is not None:
            self._policy.actor.reset()

    def eval(
        self,
        save_ckpt_fn: SaveModel = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        force_render: bool = False,
        policy_kwargs: Setting | None = None,
    ) -> tuple[bool, Info]:
        """Play the episodes, log them, and call `save_ckpt_fn('ckpt_best.pth.tar')` if the mean return is a new best.

        Returns (stop, info): stop says that the mean reached `stop_value` after training began; info holds lists by
        name, `eval_episode_return` among them, and `metrics`, the means of the env's own. `force_render` is accepted
        for DI-engine's callers: videos are made from checkpoints, in an env of their own. Raises ConfigError if the
        number of episodes is given nowhere.
        """
        result = self.play(self._num_episodes(n_episode), number=self.num_evals, policy_kwargs=policy_kwargs)
        self._log(result, train_iter=train_iter, envstep=envstep)
        stop = self._conclude(result.mean, train_iter, save_ckpt_fn)
        return stop, {**result.info, "eval_episode_return": result.returns, "metrics": result.metrics}

    def eval_last(
        self, n_episode: int, *, number: int, train_iter: int, envstep: int, save_ckpt_fn: SaveModel = None
    ) -> EvalResult:
        """Play the final evaluation of a run, which is logged and counts for the best model but stops nothing.

        Where its mean equals the best one, the last model is the best: it learned longest. It does not change the
        numbers of the evaluations of a resumed run.
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
        rng, is_leaving = self._rng_of(number), self.is_leaving
        result = play_episodes(
            self._env, self._policy, n_episode, rng=rng, policy_kwargs=policy_kwargs, is_leaving=is_leaving
        )
        if self.reference is None or self.reference[0] == self.reference[1]:  # of a run that has learned nothing
            return result
        low, high = self.reference
        score = 100.0 * (result.mean - low) / (high - low)
        return replace(result, metrics={**result.metrics, "normalized_score": score})

    def _log(self, result: EvalResult, *, train_iter: int, envstep: int) -> None:
        number = len(result.returns)
        values: dict[str, float] = {
            "episode_count": number,
            "envstep_count": sum(result.lengths),
            "avg_envstep_per_episode": sum(result.lengths) / len(result.lengths),
            "evaluate_time": result.duration_s,
            "avg_envstep_per_sec": result.env_steps / max(result.duration_s, 1e-9),
            "avg_time_per_episode": result.duration_s / number,
            **reward_stats(result.returns),
            **result.metrics,
            **{
                name: value
                for name, value in result.info.items()
                # Agents' returns are among the metrics.
                if isinstance(value, float) and not name.startswith(RETURN_OF)
            },
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


@SERIAL_EVALUATOR_REGISTRY.register("battle_interaction")
@SERIAL_EVALUATOR_REGISTRY.register("interaction_1v1")
class BattleInteractionSerialEvaluator(EpisodeEvaluator):
    """Evaluator that plays `n_episode` games with a policy per player; the first player's returns decide.

    `env` is a manager of games, or DI-engine's `BaseEnvManager` over envs whose observations, rewards and infos have an
    entry for each player.

    Evaluation k of a run with seed s seeds its games from (s, k), as the evaluator of one player does. An env whose
    quota is filled is not stepped.
    """

    config: dict[str, Any] = dict(
        **EpisodeEvaluator.config,
        type="interaction_1v1",
        # Updates between two evaluations.
        eval_freq=50,
    )
    _policies: Sequence[EvalMode] = ()
    _as_manager = staticmethod(game_manager)

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
        save_ckpt_fn: SaveModel = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        *,
        policy_kwargs: Setting | None = None,
    ) -> tuple[bool, list[list[Info]]]:
        """Play the games, log them, and call `save_ckpt_fn('ckpt_best.pth.tar')` if player 0 has a new best.

        Returns (stop, infos): stop says that player 0's mean return reached `stop_value` after training began;
        `infos[p]` has the env's `info` of each finished episode of player p, env by env, with `eval_episode_return`.
        Raises ConfigError if the number of games is given nowhere.
        """
        started = time.perf_counter()
        infos = self.play(self._num_episodes(n_episode), number=self.num_evals, policy_kwargs=policy_kwargs)
        mean = float(np.mean([info["eval_episode_return"] for info in infos[0]]))
        self._log(infos, duration_s=time.perf_counter() - started, train_iter=train_iter, envstep=envstep)
        return self._conclude(mean, train_iter, save_ckpt_fn, whose=" of player 0"), infos

    def play(self, n_episode: int, *, number: int, policy_kwargs: Setting | None = None) -> list[list[Info]]:
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


# What a metric measures is its own matter: numbers by name, for instance {"accuracy": 0.97}.
Metric = Any


# (inputs, labels), again and again; a label for each item.
Batches: TypeAlias = Iterable[tuple[object, Sized]]


class IMetric(ABC):
    """Measure what a policy makes of inputs whose labels are known."""

    # What a policy and a data set give is theirs alone: hence Any.
    @abstractmethod
    def eval(self, inputs: Any, label: Any) -> Metric:
        """Return the metric of one batch; `inputs` is what the policy computed from it."""

    @abstractmethod
    def reduce_mean(self, inputs: Sequence[Metric]) -> Metric:
        """Return the mean of the metrics of batches of equal size."""

    @abstractmethod
    def gt(self, metric1: Metric, metric2: Metric) -> bool:
        """Return whether the first metric is better than the second; any is better than None."""


@SERIAL_EVALUATOR_REGISTRY.register("metric")
class MetricSerialEvaluator(BaseSerialEvaluator):
    """Run a policy over a data set and keep the best model; `env` is (batches of (inputs, labels), an IMetric).

    The batches are asked for again at every evaluation, as of a `torch.utils.data.DataLoader`.
    """

    config: dict[str, Any] = dict(
        type="metric",
        # Updates between two evaluations.
        eval_freq=50,
        # Metric that ends the run: when an evaluation is better, or equal where it is a number by name.
        stop_value=None,
        # A key of DI-engine's configs: see `without_effect`.
        multi_gpu=False,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"eval_freq": FROM_1, "stop_value": ANY_NUMBER}
    without_effect: ClassVar[Mapping[str, str]] = {"multi_gpu": "one process evaluates"}
    config_types = {"stop_value": (int, float, dict)}

    _batches: Batches | None = None
    _metric: IMetric | None = None
    _policy: Any = None  # an eval mode: `forward(inputs)` gives what the metric takes

    def reset_env(self, _env: EnvLike = None) -> None:
        """Evaluate on other data if some are given: (batches, an IMetric). Raises ConfigError for anything else."""
        if _env is None:
            return
        if not isinstance(_env, (tuple, list)) or len(_env) != 2 or not isinstance(_env[1], IMetric):
            raise ConfigError(
                "evaluator 'metric' takes env=(batches of (inputs, labels), an IMetric), as a tuple or a list; "
                f"got {_env!r:.200}."
            )
        self._batches, self._metric = _env

    def reset_policy(self, _policy: PolicyLike = None) -> None:
        """Evaluate another policy if one is given."""
        if _policy is not None:
            self._policy = _policy
        if self._policy is not None:
            self._policy.reset()

    def reset(self, _policy: PolicyLike = None, _env: EnvLike = None) -> None:
        """Reset data, policy and the best metric."""
        super().reset(_policy, _env)
        self.best_metric: Metric = None

    def eval(self, save_ckpt_fn: SaveModel = None, train_iter: int = -1, envstep: int = -1) -> tuple[bool, Metric]:
        """Evaluate on all data, log, and call `save_ckpt_fn('ckpt_best.pth.tar')` if the metric is a new best.

        Returns (stop, metric): stop says that the metric is no worse than `stop_value` after training began.
        """
        started = time.perf_counter()
        found = self.measure()
        self._last_eval_iter = train_iter
        assert self._metric is not None, "measure() refuses without one"
        self._log(found, duration_s=time.perf_counter() - started, train_iter=train_iter, envstep=envstep)
        if self._metric.gt(found, self.best_metric):
            self.best_metric = found
            if save_ckpt_fn is not None:
                save_ckpt_fn("ckpt_best.pth.tar")
        bar = self._cfg.get("stop_value")
        stop = bar is not None and train_iter > 0 and (self._metric.gt(found, bar) or found == bar)
        return stop, found

    def measure(self) -> Metric:
        """Return the metric over all data, each item counting as much as any other. Raises ConfigError without data."""
        if self._batches is None or self._metric is None or self._policy is None:
            raise ConfigError("the evaluator needs data and a policy before eval(): call reset(policy, env).")
        by_size: dict[int, list[Metric]] = {}
        with torch.inference_mode():
            for inputs, label in self._batches:
                output = self._policy.forward(inputs)
                by_size.setdefault(len(label), []).append(self._metric.eval(output, label))
        if not by_size:
            raise ConfigError("the evaluator's data set is empty.")
        parts = [(size * len(each), self._metric.reduce_mean(each)) for size, each in by_size.items()]
        return parts[0][1] if len(parts) == 1 else _weighted(parts)

    def _log(self, found: Metric, *, duration_s: float, train_iter: int, envstep: int) -> None:
        numbers = found if isinstance(found, Mapping) else {"metric": found}
        values = {name: float(value) for name, value in numbers.items() if isinstance(value, (int, float))}
        values["evaluate_time"] = duration_s
        self._write(values, train_iter=train_iter, envstep=envstep)

    def state_dict(self) -> State:
        """Return what an exact resume needs."""
        return {"best_metric": self.best_metric, "last_eval_iter": self._last_eval_iter}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self.best_metric, self._last_eval_iter = state["best_metric"], state["last_eval_iter"]


def _weighted(parts: Sequence[tuple[int, Metric]]) -> Metric:
    """Return the mean of metrics of different numbers of items: numbers, or numbers by name."""
    total = sum(items for items, _ in parts)
    if all(isinstance(each, Mapping) for _, each in parts):
        return {name: sum(items * each[name] for items, each in parts) / total for name in parts[0][1]}
    return sum(items * each for items, each in parts) / total
