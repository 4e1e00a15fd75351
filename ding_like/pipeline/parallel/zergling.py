"""Collect and evaluate in a parallel run: DI-engine's parallel collector, in front of the roles that do the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from easydict import EasyDict

from ding_like.comm.channels import RowSink, Segment, WeightReader
from ding_like.comm.flat_state import unflatten_state
from ding_like.config.tree import deep_merge
from ding_like.data.records import EpisodeRecord
from ding_like.envs import get_vec_env_setting
from ding_like.envs.manager.versus import VersusManager
from ding_like.errors import ConfigError
from ding_like.pipeline.collect import PolicyWeights, RolloutWorker
from ding_like.pipeline.envs import EnvSetting, build_eval_env, versus
from ding_like.policy import Policy
from ding_like.types import Array, Config, EnvManager, Json, Setting, StepBatch
from ding_like.utils.bounds import Configurable
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.registries import PARALLEL_COLLECTOR_REGISTRY
from ding_like.utils.timing import Interval
from ding_like.worker.collector.base import LoopCollector
from ding_like.worker.collector.loop import RolloutLoop


class BaseParallelCollector(ABC, Configurable):
    """Base of the collectors of a parallel run: one task after another, until the process ends.

    `start` runs a task. Before each segment of it `_update_policy` is called; for each step of the envs
    `_policy_inference`, `_env_step` and `_process_timestep`; after each segment `_iter_after_hook`; at the end
    `_finish_task`. A sub-class may override any of them. `sink` and `reader` are the channels to the coordinator.
    """

    config: dict[str, Json] = {
        "print_freq": 5,  # seconds between two lines in the collector's log
    }
    _loop: RolloutLoop  # of the envs, from the first step on

    def __init__(self, cfg: Config, *, sink: RowSink | None = None, reader: WeightReader | None = None) -> None:
        """Open the log. `cfg` holds `main`, a compiled config, `seed`, `collector_uid` and `index`."""
        self._main = cfg["main"]
        self._cfg = EasyDict(deep_merge(self.config, {key: value for key, value in cfg.items() if key != "main"}))
        self._collector_uid = str(self._cfg.collector_uid)
        self._setup_logger()
        self._setup_timer()
        self._sink = sink
        self._reader = reader
        self._policy: Policy | None = None
        self._finish_info: dict[str, Json] = {}

    def _setup_logger(self) -> None:
        """Open the collector's text log."""
        self._logger, _ = build_logger(Path(self._main.exp_name, "log", "collector"), self._collector_uid)

    def _setup_timer(self) -> None:
        """Set up the clock of log lines, one every `print_freq` seconds."""
        self._timer = Interval(float(self._cfg.print_freq), starts_due=True)

    def start(self, task_info: Config) -> None:
        """Run one task until it is done or the coordinator ends it."""
        self._start_thread()
        try:
            self._finish_info = self._finish_task(self._run(task_info))
        finally:
            self._join_thread()

    @abstractmethod
    def _run(self, task_info: Config) -> dict[str, Json]:
        """Run one task and return its result."""

    def _start_thread(self) -> None:  # optional
        """Start the threads that a task needs: none."""

    def _join_thread(self) -> None:  # optional
        """Join what `_start_thread` started."""

    def _update_policy(self) -> None:  # optional
        """Load the newest weights, before each segment."""

    def _step(
        self, loop: RolloutLoop, setting: Setting, *, policy_version: int, idle: Array | None
    ) -> list[EpisodeRecord]:
        self._loop = loop
        lanes, actions = self._policy_inference(setting, policy_version=policy_version, idle=idle)
        return self._process_timestep(self._env_step(lanes, actions))

    def _policy_inference(self, setting: Setting, *, policy_version: int, idle: Array | None) -> tuple[Array, Array]:
        """Return the lanes [R] that are ready and not `idle` [E], and the policy's actions for them [R, A...]."""
        return self._loop.act(setting, policy_version=policy_version, idle=idle)

    def _env_step(self, lanes: Array, actions: Array) -> StepBatch:
        """Step the envs of `lanes` [R] with `actions` [R, A...]."""
        return self._loop.manager.step(lanes, actions)

    def _process_timestep(self, timestep: StepBatch) -> list[EpisodeRecord]:
        """Log the transitions of a step; return the episodes that ended."""
        return self._loop.close(timestep)

    def _iter_after_hook(self, segment: Segment) -> None:  # optional
        """Do what follows a segment that was sent."""

    def _finish_task(self, result: dict[str, Json]) -> dict[str, Json]:
        """Return the result of the task that ended, as it is sent to the coordinator."""
        return result

    def get_finish_info(self) -> dict[str, Json]:
        """Return the result of the task that ended last."""
        return self._finish_info

    def close(self) -> None:
        """Close what the collector holds; may be called again."""
        close_logger(self._logger)

    @property
    def policy(self) -> Policy:
        """Policy that acts. Raises ConfigError before there is one."""
        if self._policy is None:
            raise ConfigError("the collector has no policy before its first task.")
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy

    def info(self, s: str) -> None:
        self._logger.info(s)

    def error(self, s: str) -> None:
        self._logger.error(s)

    def debug(self, s: str) -> None:
        self._logger.debug(s)


class _Worker(RolloutWorker):
    """Rollout worker that calls the hooks of a parallel collector."""

    owner: ZerglingParallelCollector

    def update_policy(self) -> None:
        self.owner._update_policy()

    def after_segment(self, segment: Segment) -> None:
        self.owner._iter_after_hook(segment)


@PARALLEL_COLLECTOR_REGISTRY.register("zergling")
class ZerglingParallelCollector(BaseParallelCollector):
    """Parallel collector of one policy in many envs; envs and open episodes stay from task to task.

    A task is to collect segments as they are ordered, or, with `eval_flag`, to play the episodes of an evaluation.
    """

    config: dict[str, Json] = {
        **BaseParallelCollector.config,
        "type": "zergling",
        # DI-engine's keys: rows travel as they are, and weights are loaded whenever newer ones are known.
        "compressor": None,
        "update_policy_second": 0,
    }

    def __init__(
        self,
        cfg: Config,
        *,
        sink: RowSink | None = None,
        reader: WeightReader | None = None,
        env_setting: EnvSetting | None = None,
    ) -> None:
        super().__init__(cfg, sink=sink, reader=reader)
        self._setting: EnvSetting = env_setting or get_vec_env_setting(self._main.env)
        # Lanes of all collectors have seeds of their own.
        self._seed = int(self._cfg.seed) + int(self._cfg.index) * len(self._setting[1])
        self._end = _Worker.build(
            self._main,
            seed=self._seed,
            env_setting=self._setting,
            name=f"collector{self._cfg.index}",
            seen=self._as_seen,
        )
        self._end.owner = self
        self.policy = self._end.policy
        if isinstance(self._end.collector, LoopCollector):
            self._end.collector.step_by(self._step)
        self._weights: PolicyWeights | None = None  # from the first task on
        self._evaluates = False  # from the first evaluation on

    def _run(self, task_info: Config) -> dict[str, Json]:
        return self._evaluate(task_info) if task_info["eval_flag"] else self._collect(task_info)

    def close(self) -> None:
        self._end.close()
        super().close()

    # --- collecting

    def _collect(self, task_info: Config) -> dict[str, Json]:
        if task_info.get("segment_episodes"):  # this collector's share of what one would collect at a time
            self.policy.collect_mode.set_attribute("n_episode", int(task_info["segment_episodes"]))
        if self._sink is None:
            raise ConfigError("the collector has nowhere to put rows: give it the channels `sink` and `reader`.")
        self._end.connect(self._loaded(str(task_info["policy_id"])), self._sink)
        return {"segments": self._end.run(is_done=lambda: self._is_done(task_info))}

    def _is_done(self, task_info: Config) -> bool:
        """Return whether a task to collect is done before the coordinator ends it."""
        return False

    def _update_policy(self) -> None:
        self._end.weights.take_newest()

    def _loaded(self, policy_id: str) -> PolicyWeights:
        if self._reader is None:
            raise ConfigError("the collector has no weights to act with: give it the channels `sink` and `reader`.")
        if self._weights is None:
            self._weights = PolicyWeights(self.policy, self._reader, policy_id=policy_id)
        return self._weights

    def _iter_after_hook(self, segment: Segment) -> None:
        if self._timer.pass_s():
            iteration, env_step = segment.version.update, self._end.collector.envstep
            self.info(f"policy of iteration {iteration}, env step {env_step}, {dict(segment.stats)}")

    # --- evaluating

    def _evaluate(self, task_info: Config) -> dict[str, Json]:
        weights = self._loaded(str(task_info["policy_id"]))
        if not self._evaluates:
            seed = int(self._cfg.seed)
            self._end.use_eval_envs(build_eval_env(self._main, seed=seed, env_setting=self._setting), seed=seed)
            self._evaluates = True
        number = int(task_info["number"])
        result = self._end.evaluate(int(task_info["n_episode"]), number=number, weights=weights)
        iteration = weights.version.update
        self.info(f"evaluation {number} of iteration {iteration}: mean {result.mean:g}")
        return {
            "returns": result.returns,
            "lengths": result.lengths,
            "version": iteration,
            "duration_s": result.duration_s,
            "metrics": dict(result.metrics),
        }

    def _as_seen(self, envs: EnvManager) -> EnvManager:
        """Return the envs of collecting as the policy sees them."""
        return envs


@PARALLEL_COLLECTOR_REGISTRY.register("marine")
class MarineParallelCollector(ZerglingParallelCollector):
    """Parallel collector of games: the policy that learns, and its opponent of the task.

    A task brings the opponent's Weights in `opponent` (None: the newest of the one that learns) and says how many
    `games` it is for. Its result has `game_result`, the games that ended: 1 won, 0 drawn, -1 lost.
    """

    config: dict[str, Json] = {**ZerglingParallelCollector.config, "type": "marine"}

    _versus: VersusManager

    def _as_seen(self, envs: EnvManager) -> EnvManager:
        self._versus = versus(envs, seed=self._seed, name="collector")
        return self._versus

    def _collect(self, task_info: Config) -> dict[str, Json]:
        self._game_result: list[int] = []
        opponent = task_info.get("opponent")
        if opponent is None:
            self._versus.use_opponent(self._end.opponents.newest_self())
        else:
            self._versus.use_opponent(self._end.opponents.past_self(unflatten_state(opponent.state)["model"]))
        self._versus.take_results()  # of a task that was broken off
        return {**super()._collect(task_info), "game_result": self._game_result}

    def _iter_after_hook(self, segment: Segment) -> None:
        super()._iter_after_hook(segment)
        self._game_result += self._versus.take_results()

    def _is_done(self, task_info: Config) -> bool:
        return len(self._game_result) >= int(task_info.get("games", 1))
