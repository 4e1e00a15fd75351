"""Commanders: the settings of the next collection of a serial run, and the tasks of a parallel run."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias, TypeGuard

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Config, Info, PolicyLike, Report, State
from ding_like.utils.bounds import FROM_0, Configurable
from ding_like.utils.registries import COMMANDER_REGISTRY

# Published weights: the fields of PolicyVersion.
Weights: TypeAlias = dict[str, Any]

_MAX_GAMES = 10_000  # in one result: rating them takes half a second


class BaseSerialCommander(Configurable):
    """Source of collect settings (`eps`, say): the policy, given the progress of learner and collector."""

    def __init__(
        self,
        cfg: Config,
        learner: Any,  # Any: protocols of the level above; only two attributes are read
        collector: Any,
        evaluator: Any,
        replay_buffer: Any,
        policy: PolicyLike = None,  # the command mode of a policy; may be set later
    ) -> None:
        self._cfg = cfg
        self._learner = learner
        self._collector = collector
        self._evaluator = evaluator
        self._replay_buffer = replay_buffer
        self._policy = policy

    def step(self) -> Info:
        """Return the settings of the next `collect`, from the learner's `learn_info` and the collector's `envstep`."""
        info = {**self._learner.learn_info, "envstep": self._collector.envstep}
        setting: dict[str, Any] = self.policy.get_setting_collect(info)
        return setting

    @property
    def policy(self) -> PolicyLike:
        """Command mode of the policy. Raises ConfigError before there is one."""
        if self._policy is None:
            raise ConfigError("the commander has no policy; set commander.policy = policy.command_mode first.")
        return self._policy

    @policy.setter
    def policy(self, policy: PolicyLike) -> None:
        self._policy = policy


class NewTask(NamedTuple):
    """Task for the coordinator; `cfg` is plain data."""

    kind: str  # collect, eval or learn
    cfg: dict[str, Any]
    buffer_id: str = "buffer"
    policy_id: str = "policy"


class RunView(Protocol):
    """What a commander reads of a run, and the one request that it can make."""

    @property
    def env_step(self) -> int: ...

    def num_workers(self, role: str) -> int: ...

    def num_open(self, kind: str) -> int:
        """Return how many tasks of a kind are queued or being done."""

    def policy_of(self, policy_id: str) -> Weights | None:
        """Return the newest published weights of a policy, the fields of PolicyVersion."""

    def ask_back(self, kind: str) -> bool:
        """Ask for a task of a kind to be finished early."""


def _are_numbers(values: Any) -> TypeGuard[list[float]]:
    return isinstance(values, list) and bool(values) and all(isinstance(value, (int, float)) for value in values)


@COMMANDER_REGISTRY.register("naive")
class NaiveCommander(Configurable):
    """Commander of a run in which one learner trains one policy from the data of any number of collectors.

    There is one learn task, one collect task for each collector, and an eval task whenever `eval_freq` learner
    iterations have passed since the version that was evaluated last, beginning with version 0.
    """

    config: dict[str, Any] = {
        "type": "naive",
        # Collect tasks that are open even before there are collectors.
        "collector_task_space": 1,
        # Learn tasks that are open, always one.
        "learner_task_space": 1,
        # Seconds between evaluations in DI-engine's configs; here `eval_freq` decides.
        "eval_interval": 60,
        # Updates between two evaluations.
        "eval_freq": 1000,
        # Episodes of an evaluation.
        "n_episode": 5,
        # Mean return of an evaluation that ends the run.
        "stop_value": float("inf"),
        # Env steps that end the run.
        "max_env_step": float("inf"),
    }

    _saved = ("_num_evals", "_evaluated", "stop", "best_policy", "final_policy", "_unconfirmed", "learn_result")

    def __init__(self, cfg: Config, **settings: Any) -> None:
        """Take settings from `cfg`; those given by keyword go first. Raises ConfigError for wrong task spaces."""
        self._cfg = {**self.config, **cfg, **settings}
        self._check_task_spaces()
        self._eval_freq = int(self._cfg["eval_freq"])
        self._n_episode = int(self._cfg["n_episode"])
        self._stop_value = float(self._cfg["stop_value"])
        self._max_env_step = float(self._cfg["max_env_step"])
        self._num_evals = 0
        self._evaluated = -self._eval_freq  # the version of the last evaluation
        self.stop = False  # an evaluation reached the stop value
        self.best_return = float("-inf")
        # Weights (fields of PolicyVersion) with the best evaluation, and those whose evaluation ended the run.
        self.best_policy: dict[str, Any] | None = None
        self.final_policy: dict[str, Any] | None = None
        # Results that the coordinator has not recorded yet, and evaluations that the final one did not confirm.
        self.evaluations: list[dict[str, Any]] = []
        self.refuted: list[dict[str, Any]] = []
        # While an evaluation's stop is not confirmed: the best return and its weights before it.
        self._unconfirmed: dict[str, Any] | None = None
        self.learn_result: dict[str, Any] | None = None

    def _check_task_spaces(self) -> None:
        collect, learn = self._cfg["collector_task_space"], self._cfg["learner_task_space"]
        section = "policy.other.commander"
        if type(collect) is not int or not FROM_0.hold(collect):
            raise ConfigError(f"{section}.collector_task_space is {collect!r}; give a whole number, {FROM_0}.")
        if learn != 1:
            raise ConfigError(
                f"{section}.learner_task_space is {learn!r}, but a parallel run has one learn task: leave it out. "
                "Several processes share that task with --learners N."
            )

    def new_tasks(self, run: RunView) -> list[NewTask]:
        """Return tasks that are due now."""
        if self.is_to_end(run):
            return []
        tasks = [] if run.num_open("learn") else [NewTask("learn", {})]
        wanted = max(self._cfg["collector_task_space"], run.num_workers("collector"))
        tasks += self._collect_tasks(run, wanted - run.num_open("collect"))
        policy = run.policy_of("policy")
        version = None if policy is None else int(policy["version"])
        if version is not None and version - self._evaluated >= self._eval_freq and not run.num_open("eval"):
            cfg = {"number": self._num_evals, "n_episode": self._n_episode, "best_return": self._best()}
            tasks.append(NewTask("eval", cfg))
            self._num_evals += 1
            self._evaluated = version
            run.ask_back("collect")
        return tasks

    def _collect_tasks(self, run: RunView, number: int) -> list[NewTask]:
        """Return so many tasks to collect."""
        return [NewTask("collect", {})] * number

    def finished(
        self, kind: str, result: Report, *, task_cfg: Config | None = None, newest: Weights | None = None
    ) -> bool:
        """Take a task's result; return whether the run is over: the learner has evaluated its last model.

        A stop is confirmed by the learner's final evaluation: if the model is worth less than `stop_value` there,
        the run continues. `result` has the worker's values, and the coordinator's `env_step` and `policy` (the weights
        of the task); `newest` are the weights published last, None before there are any. Raises SchemaError for a
        malformed result.
        """
        if kind == "eval":
            self._count_evaluation(result)
        if kind != "learn":
            return False
        value, is_at_limit = result.get("eval_value"), result.get("env_step", 0) >= self._max_env_step
        # The final evaluation contradicts the one that stopped the run, and nothing else ends it.
        if self._unconfirmed is not None and not is_at_limit and value is not None and value < self._stop_value:
            self._take_stop_back(self._unconfirmed, float(value))
            return False
        self.learn_result = dict(result)
        return True

    def _count_evaluation(self, result: Report) -> None:
        returns, version = result.get("returns"), result.get("version")
        if not _are_numbers(returns) or not isinstance(version, int):
            raise SchemaError(f"an evaluation has returns {returns!r:.80} and version {version!r:.80}.")
        mean = sum(returns) / len(returns)
        is_best, is_enough = mean > self.best_return, mean >= self._stop_value and version > 0
        before = {"best_return": self._best(), "best_policy": self.best_policy}
        self.evaluations.append({**result, "is_best": is_best})
        if is_best:
            self.best_return, self.best_policy = mean, result.get("policy")
        if is_enough and not self.stop:
            self.stop, self.final_policy, self._unconfirmed = True, result.get("policy"), before

    def _take_stop_back(self, before: Weights, judged: float) -> None:
        """Continue the run. The weights are worth what the final evaluation found, in more and fresh episodes."""
        best_before = float("-inf") if before["best_return"] is None else before["best_return"]
        said, self.best_return = self.best_return, max(best_before, judged)
        self.best_policy = before["best_policy"] if best_before >= judged else self.final_policy
        self.refuted.append({"said": said, "judged": judged, "best": self.best_return, "policy": self.best_policy})
        self.stop, self.final_policy, self._unconfirmed = False, None, None

    def is_to_end(self, run: RunView) -> bool:
        """Return whether all tasks are to finish: the run is solved, or at its limit of env steps."""
        return self.stop or run.env_step >= self._max_env_step

    @property
    def kept_policies(self) -> list[Weights | None]:
        """Weights whose files must be kept."""
        before = None if self._unconfirmed is None else self._unconfirmed["best_policy"]
        return [self.best_policy, self.final_policy, before]

    def _best(self) -> float | None:
        return None if self.best_return == float("-inf") else self.best_return

    def state_dict(self) -> State:
        """Return the state that a restarted coordinator continues from."""
        return {**{name.lstrip("_"): getattr(self, name) for name in self._saved}, "best_return": self._best()}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        for name in self._saved:
            setattr(self, name, state.get(name.lstrip("_")))
        self.best_return = float("-inf") if state["best_return"] is None else state["best_return"]


@COMMANDER_REGISTRY.register("one_vs_one")
class OneVsOneCommander(NaiveCommander):
    """Commander that gives every collect task an opponent, and records the games' results.

    A collect task ends after the league's `games_per_job` games. Snapshots are published versions of the weights,
    whose files are kept. The run ends as the naive commander's does, or when the player beats the hardest snapshot
    with more than `strong_win_rate` at `stop_snapshots` snapshots.
    """

    config = {
        **NaiveCommander.config,
        "type": "one_vs_one",
        "collector_task_space": 2,
        # Win rate against every snapshot that ends the run.
        "strong_win_rate": 0.7,
        # Number of snapshots from which win rates can end the run.
        "stop_snapshots": float("inf"),
    }

    def __init__(self, cfg: Config, *, league: Any = None, **settings: Any) -> None:
        """Take settings as the naive commander does. `league` has one learning player, and keeps no files itself.

        Raises ConfigError without a league.
        """
        super().__init__(cfg, **settings)
        if league is None:
            raise ConfigError("commander 'one_vs_one' needs a league: create_config.league=dict(type='one_vs_one').")
        self._league = league
        self._player: str = league.active_players_ids[0]
        self._newest: dict[str, Any] | None = None
        self._weights: dict[str, dict[str, Any]] = {}  # of snapshots, by their names: fields of PolicyVersion

    def _collect_tasks(self, run: RunView, number: int) -> list[NewTask]:
        self._newest = run.policy_of("policy") or self._newest
        if self._newest is None:
            return []  # there are no weights to play with
        if not self._league.historical_players:
            self._league.begin()
            self._keep_new_snapshots()
        return [NewTask("collect", self._job()) for _ in range(number)]

    def _job(self) -> Info:
        job = self._league.get_job_info(self._player)
        opponent = job["player_id"][1]
        return {
            **job,
            "opponent": self._weights.get(opponent),  # None: the newest self
            "policy_update_flag": [True, opponent == self._player],
            "games": self._league.games_per_job,
        }

    def finished(
        self, kind: str, result: Report, *, task_cfg: Config | None = None, newest: Weights | None = None
    ) -> bool:
        if kind == "collect":
            self._newest = newest or self._newest
            self._count(result.get("game_result"), (task_cfg or {}).get("player_id"))
        return super().finished(kind, result, task_cfg=task_cfg, newest=newest)

    def _count(self, games: Any, players: Any) -> None:
        """Take the results of a task's games. Raises SchemaError for malformed ones."""
        if not isinstance(games, list) or len(games) > _MAX_GAMES or any(each not in (-1, 0, 1) for each in games):
            raise SchemaError(f"the games of a task ended with {games!r:.80}; expected a list of 1, 0 and -1.")
        if players is None:
            return
        self._league.finish_job({"player_id": players, "result": games})
        if self._newest is not None:
            self._league.update_active_player({"player_id": self._player, "train_iteration": self._newest["version"]})
            if self._league.judge_snapshot(self._player) is not None:
                self._keep_new_snapshots()
        if self._is_strong_enough():  # many games need no confirmation by an evaluation
            self.stop, self._unconfirmed = True, None

    def _keep_new_snapshots(self) -> None:
        assert self._newest is not None, "a snapshot is of published weights"
        for player in self._league.historical_players:
            self._weights.setdefault(player.player_id, self._newest)

    def _is_strong_enough(self) -> bool:
        past = self._league.historical_players
        if len(past) < self._cfg["stop_snapshots"]:
            return False
        return bool(self._league.payoff.beats_all(self._player, past, self._cfg["strong_win_rate"]))

    @property
    def kept_policies(self) -> list[Weights | None]:
        return [*super().kept_policies, *self._weights.values()]

    def table(self) -> list[Info]:
        """Return the league's table."""
        found: list[dict[str, Any]] = self._league.table()
        return found

    def state_dict(self) -> State:
        return {**super().state_dict(), "league": self._league.state_dict(), "weights": dict(self._weights)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._league.load_state_dict(state["league"])
        self._weights = dict(state["weights"])


def create_parallel_commander(cfg: Config, **kwargs: Any) -> NaiveCommander:
    """Build the commander that `cfg.type` (or DI-engine's `parallel_commander_type`) names; `kwargs` go to it.

    `import_names` says where it may be registered. Raises RegistryError (a KeyError) for an unknown name.
    """
    name = cfg.get("parallel_commander_type") or cfg.get("type") or "naive"
    commander: NaiveCommander = COMMANDER_REGISTRY.get(name, cfg.get("import_names") or ())(cfg, **kwargs)
    return commander
