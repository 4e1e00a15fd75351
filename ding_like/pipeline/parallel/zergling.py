"""Collect and evaluate in a parallel run: envs, a policy, and a collector that knows neither files nor network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from easydict import EasyDict

from ding_like.comm.rest.messages import PolicyVersion, SegmentInfo
from ding_like.config.tree import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import WrittenSegment
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline.build import EnvSetting, Opponents
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.self_play import is_game, versus
from ding_like.policy import create_policy
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import EnvManager
from ding_like.utils.configurable import Configurable
from ding_like.utils.interval import Interval
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.registries import PARALLEL_COLLECTOR_REGISTRY
from ding_like.utils.seeding import make_rng, set_pkg_seed
from ding_like.worker import InteractionSerialEvaluator, create_serial_collector, create_serial_evaluator


class Order(Protocol):
    """Say what a collector is to do next; every answer of the coordinator to one does."""

    @property
    def finish(self) -> bool: ...  # end the task

    @property
    def credit(self) -> int: ...  # rows that may be collected now; 0: ask again

    @property
    def env_step(self) -> int: ...  # of the whole run

    @property
    def policy(self) -> PolicyVersion | None: ...  # the newest weights


class StepData(NamedTuple):
    """Hold the rows of one segment and how they came to be."""

    batch: TransitionBatch
    policy_iter: int  # train_iter of the weights that acted
    env_steps: int  # that were taken for them, dropped ones included
    policy_attempt: int = 0  # at the task of learning, of the weights that acted


class PolicyUpdate(NamedTuple):
    """Hold the state of a collect mode, the learner's iteration at its publication and the attempt that published."""

    iter: int
    state: Mapping[str, Any]
    attempt: int = 0


class BaseParallelCollector(ABC, Configurable):
    """Do one task after another for a comm collector, which sets the five callables before the first.

    `send_stepdata(data_id, stepdata)` keeps rows where the learner finds them, `send_metadata(metadata)` announces them
    and returns the next order, `ask_order()` returns one without news, and `get_policy_update_info(path)` returns the
    newest weights of a policy, None if they are the ones it returned last. `get_weights(path, version)` returns one
    version's.
    """

    config: dict[str, Any] = {
        "print_freq": 5,  # seconds between two lines in the collector's log
    }

    send_stepdata: Callable[[str, StepData], WrittenSegment]
    send_metadata: Callable[[SegmentInfo], Order]
    ask_order: Callable[[], Order]
    get_policy_update_info: Callable[[str], PolicyUpdate | None]
    get_weights: Callable[[str, PolicyVersion], Mapping[str, Any]]

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        """Open the log. `cfg` holds `main`, a compiled config, `seed`, `collector_uid` and `index`."""
        self._main = cfg["main"]
        self._cfg = EasyDict(deep_merge(self.config, {key: value for key, value in cfg.items() if key != "main"}))
        self._collector_uid = str(self._cfg.collector_uid)
        self._logger, _ = build_logger(Path(self._main.exp_name, "log", "collector"), self._collector_uid)
        self._policy: Any = None

    @abstractmethod
    def start(self, task_info: Mapping[str, Any]) -> None:
        """Do one task until it is done or asked back."""

    @abstractmethod
    def get_finish_info(self) -> dict[str, Any]:
        """Return the result of the task that was done last."""

    def close(self) -> None:
        """Close what the collector holds; may be called again."""
        close_logger(self._logger)

    @property
    def policy(self) -> Any:
        """Return the policy that acts. Raises ConfigError before there is one."""
        if self._policy is None:
            raise ConfigError("the collector has no policy before its first task.")
        return self._policy

    @policy.setter
    def policy(self, policy: Any) -> None:
        self._policy = policy

    def info(self, s: str) -> None:
        self._logger.info(s)

    def error(self, s: str) -> None:
        self._logger.error(s)

    def debug(self, s: str) -> None:
        self._logger.debug(s)


@PARALLEL_COLLECTOR_REGISTRY.register("zergling")
class ZerglingParallelCollector(BaseParallelCollector):
    """Let one policy act in many envs; envs and open episodes stay from task to task.

    A task is to collect segments while there is credit, or, with `eval_flag`, to play the episodes of an evaluation.
    """

    config: dict[str, Any] = {
        **BaseParallelCollector.config,
        "type": "zergling",
        # DI-engine's keys: rows travel as they are, and weights are loaded whenever newer ones are known.
        "compressor": None,
        "update_policy_second": 0,
    }

    def __init__(self, cfg: Mapping[str, Any], *, env_setting: EnvSetting | None = None) -> None:
        super().__init__(cfg)
        # Lanes of all collectors have seeds of their own.
        self._setting: EnvSetting = env_setting or get_vec_env_setting(self._main.env)
        self._seed = int(self._cfg.seed) + int(self._cfg.index) * len(self._setting[1])
        self._manager = self._launch_collect()
        if any(self._manager.wrapper_states()):
            raise ConfigError(
                "the env's wrappers learn statistics (obs_norm, reward_norm), which the processes of a parallel run "
                "do not share: each would train on another scale. Use mode serial, or normalise by fixed numbers."
            )
        set_pkg_seed(self._seed, use_cuda=bool(self._main.policy.cuda))
        fitted = fit_policy_config(self._main.policy, self._manager)
        self.policy = create_policy(fitted, enable_field=["collect", "eval", "command"])
        self._opponents = Opponents(fitted, self.policy)
        self._collector: Any = create_serial_collector(
            self._main.policy.collect.collector,
            env=self._manager,
            policy=self.policy.collect_mode,
            rng=make_rng(self._seed, "collector"),
            exp_name=self._main.exp_name,
            instance_name=f"collector{self._cfg.index}",
        )
        self._evaluator: InteractionSerialEvaluator | None = None
        self._acts_at_random = False
        self._policy_iter = self._policy_attempt = 0
        self._num_segments = 0
        self._finish_info: dict[str, Any] = {}
        self._lines = Interval(float(self._cfg.print_freq), starts_due=True)

    def start(self, task_info: Mapping[str, Any]) -> None:
        if task_info["eval_flag"]:
            self._evaluate(task_info)
        else:
            self._collect(task_info)

    def get_finish_info(self) -> dict[str, Any]:
        return self._finish_info

    def close(self) -> None:
        self._collector.close()
        if self._evaluator is not None:
            self._evaluator.close()
        super().close()

    # --- collecting

    def _collect(self, task_info: Mapping[str, Any]) -> None:
        before = self._num_segments
        order = self.ask_order()
        while not order.finish and not self._is_done(task_info):
            if order.credit == 0:
                order = self.ask_order()
                continue
            self._update_policy(task_info["policy_id"])
            order = self._collect_segment(order)
        self._finish_info = {"segments": self._num_segments - before}

    def _is_done(self, task_info: Mapping[str, Any]) -> bool:
        """Tell whether a task to collect is done though nobody asks for its end."""
        return False

    def _collect_segment(self, order: Order) -> Order:
        """Take as many rows as are allowed, keep them, announce them; return what is next."""
        collector = self._collector
        self._act_at_random(order.env_step < self._main.policy.random_collect_size)
        first_step = collector.envstep
        setting = self.policy.command_mode.get_setting_collect({"envstep": order.env_step})
        batch = collector.collect(n_sample=order.credit, train_iter=self._policy_iter, policy_kwargs=setting)
        if not isinstance(batch, TransitionBatch):
            raise ConfigError(
                f"policy '{self._main.policy.type}' gives rows that do not stack; mode parallel needs equal shapes."
            )
        env_steps = collector.envstep - first_step
        data_id = f"{self._collector_uid}.{self._num_segments:08d}"
        self._num_segments += 1
        written = self.send_stepdata(data_id, StepData(batch, self._policy_iter, env_steps, self._policy_attempt))
        stats = {"return": _finite(collector.mean_return), "length": _finite(collector.mean_length), **setting}
        if self._lines.pass_s():
            self.info(f"{data_id}: policy of iteration {self._policy_iter}, env step {collector.envstep}, {stats}")
        return self.send_metadata(
            SegmentInfo(
                **written._asdict(),
                policy_version=self._policy_iter,
                env_steps=env_steps,
                stats=stats,
                policy_attempt=self._policy_attempt,
            )
        )

    def _act_at_random(self, at_random: bool) -> None:
        """Fill the buffer with random actions first, as the serial pipeline does."""
        if at_random == self._acts_at_random:
            return
        mode = self.policy.collect_mode
        self._collector.reset_policy(random_collect_mode(mode, self._manager.action_space) if at_random else mode)
        self._acts_at_random = at_random

    def _update_policy(self, policy_id: str) -> None:
        """Take over the newest weights if they are newer than ours."""
        newest = self.get_policy_update_info(policy_id)
        if newest is not None:
            self.policy.collect_mode.load_state_dict(newest.state)
            self._policy_iter, self._policy_attempt = newest.iter, newest.attempt

    # --- evaluating

    def _evaluate(self, task_info: Mapping[str, Any]) -> None:
        if self._evaluator is None:
            self._evaluator = create_serial_evaluator(
                self._main.policy.eval.evaluator,
                env=self._launch_eval(),
                policy=self.policy.eval_mode,
                seed=int(self._cfg.seed),
                exp_name=self._main.exp_name,
            )
        self._update_policy(task_info["policy_id"])
        result = self._evaluator.play(int(task_info["n_episode"]), number=int(task_info["number"]))
        self.info(f"evaluation {task_info['number']} of iteration {self._policy_iter}: mean {result.mean:g}")
        self._finish_info = {
            "returns": result.returns,
            "lengths": result.lengths,
            "version": self._policy_iter,
            "duration_s": result.duration_s,
        }

    def _launch_collect(self) -> EnvManager:
        """Return the envs of collecting, as the policy sees them."""
        return self._launch(self._setting[1], self._seed)

    def _launch_eval(self) -> EnvManager:
        seed = int(self._cfg.seed)
        manager = self._launch(self._setting[2], seed)
        if not is_game(self._main):
            return manager
        seen = versus(manager, seed=seed, name="evaluator")
        self._opponents.face(seen, self._main.env.manager.opponent)
        return seen

    def _launch(self, env_cfgs: Any, seed: int) -> EnvManager:
        factories = [EnvFactory(env_cfg, self._setting[0]) for env_cfg in env_cfgs]
        manager = create_env_manager(self._main.env.manager, factories)
        manager.seed(seed)
        manager.launch()
        return manager


def _finite(value: float) -> float | None:
    return value if value == value else None
