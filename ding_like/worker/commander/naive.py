"""Commander of a parallel run in which one learner trains one policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import State
from ding_like.utils.bounds import FROM_0
from ding_like.utils.configurable import Configurable
from ding_like.utils.registries import COMMANDER_REGISTRY


class NewTask(NamedTuple):
    """Describe a task that the coordinator is to keep; `cfg` is plain data."""

    kind: str  # collect, eval or learn
    cfg: dict[str, Any]
    buffer_id: str = "buffer"
    policy_id: str = "policy"


class RunView(Protocol):
    """Define what a commander reads of a run, and the one request that it can make."""

    @property
    def env_step(self) -> int: ...

    def num_workers(self, role: str) -> int: ...

    def num_open(self, kind: str) -> int:
        """Return how many tasks of a kind are queued or being done."""

    def policy_of(self, policy_id: str) -> dict[str, Any] | None:
        """Return the newest published weights of a policy, the fields of PolicyVersion."""

    def ask_back(self, kind: str) -> bool:
        """Ask for a task of a kind to be finished early."""


def _are_numbers(values: Any) -> TypeGuard[list[float]]:
    return isinstance(values, list) and bool(values) and all(isinstance(value, (int, float)) for value in values)


@COMMANDER_REGISTRY.register("naive")
class NaiveCommander(Configurable):
    """Have one policy trained by one learner from the data of any number of collectors.

    There is one learn task, one collect task for each collector, and an eval task whenever `eval_freq` learner
    iterations have passed since the version that was evaluated last, beginning with version 0.
    """

    config: dict[str, Any] = {
        "type": "naive",
        # Collect tasks that are open even before there are collectors.
        "collector_task_space": 1,
        # Learn tasks that are open, always one.
        "learner_task_space": 1,
        # Seconds between evaluations in DI-engine's configs; here `eval_freq` says how often.
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

    def __init__(self, cfg: Mapping[str, Any], **settings: Any) -> None:
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
        # Results that were not taken note of yet, and evaluations that the final one did not confirm.
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
        self,
        kind: str,
        result: Mapping[str, Any],
        *,
        task_cfg: Mapping[str, Any] | None = None,
        newest: dict[str, Any] | None = None,
    ) -> bool:
        """Take a task's result; return whether the run is over: the learner has evaluated its last model.

        A stop is confirmed by the learner's final evaluation: if the model is worth less than `stop_value` there,
        the run goes on. `result` has what the worker says, and the coordinator's `env_step` and `policy` (the weights
        that the task was about); `newest` are those published last, None before there are any. Raises SchemaError for
        a malformed result.
        """
        if kind == "eval":
            returns, version = result.get("returns"), result.get("version")
            if not _are_numbers(returns) or not isinstance(version, int):
                raise SchemaError(f"an evaluation has returns {returns!r:.80} and version {version!r:.80}.")
            mean = sum(returns) / len(returns)
            is_best, is_enough = mean > self.best_return, mean >= self._stop_value and version > 0
            if is_enough and not self.stop:
                self._unconfirmed = {"best_return": self._best(), "best_policy": self.best_policy}
            self.best_return = max(self.best_return, mean)
            self.evaluations.append({**result, "is_best": is_best})
            if is_best:
                self.best_policy = result.get("policy")
            if is_enough and not self.stop:
                self.stop, self.final_policy = True, result.get("policy")
        if kind == "learn":
            if self._is_refuted(result):
                self._go_on(result)
                return False
            self.learn_result = dict(result)
            return True
        return False

    def _is_refuted(self, result: Mapping[str, Any]) -> bool:
        """Tell whether the final evaluation contradicts the one that stopped the run, and nothing else ends it."""
        value = result.get("eval_value")
        is_at_limit = result.get("env_step", 0) >= self._max_env_step
        return self._unconfirmed is not None and not is_at_limit and value is not None and value < self._stop_value

    def _go_on(self, result: Mapping[str, Any]) -> None:
        """Take the stop back. The weights are worth what the final evaluation found, in more and fresh episodes."""
        assert self._unconfirmed is not None, "a stop that was not confirmed"
        before, judged = self._unconfirmed, float(result["eval_value"])
        best_before = float("-inf") if before["best_return"] is None else before["best_return"]
        said, self.best_return = self.best_return, max(best_before, judged)
        self.best_policy = before["best_policy"] if best_before >= judged else self.final_policy
        self.refuted.append({"said": said, "judged": judged, "best": self.best_return, "policy": self.best_policy})
        self.stop, self.final_policy, self._unconfirmed = False, None, None

    def is_to_end(self, run: RunView) -> bool:
        """Tell whether all tasks are to be finished: the run is solved, or at its limit of env steps."""
        return self.stop or run.env_step >= self._max_env_step

    @property
    def kept_policies(self) -> list[dict[str, Any] | None]:
        """Return the weights whose files must be kept."""
        before = None if self._unconfirmed is None else self._unconfirmed["best_policy"]
        return [self.best_policy, self.final_policy, before]

    def _best(self) -> float | None:
        return None if self.best_return == float("-inf") else self.best_return

    def state_dict(self) -> State:
        """Return what a restarted coordinator goes on from."""
        return {
            "num_evals": self._num_evals,
            "evaluated": self._evaluated,
            "stop": self.stop,
            "best_return": self._best(),
            "best_policy": self.best_policy,
            "final_policy": self.final_policy,
            "unconfirmed": self._unconfirmed,
            "learn_result": self.learn_result,
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._num_evals = state["num_evals"]
        self._evaluated = state["evaluated"]
        self.stop, self.learn_result = state["stop"], state["learn_result"]
        self.best_policy, self.final_policy = state["best_policy"], state["final_policy"]
        self._unconfirmed = state.get("unconfirmed")
        self.best_return = float("-inf") if state["best_return"] is None else state["best_return"]


@COMMANDER_REGISTRY.register("solo")
class SoloCommander(NaiveCommander):
    """Be the naive commander."""

    config = {**NaiveCommander.config, "type": "solo"}
