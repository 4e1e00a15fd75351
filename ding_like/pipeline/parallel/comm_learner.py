"""Connect a learner to a coordinator: batches come in, weights and priorities go out, over HTTP and files.

What stays with the process from one attempt at the task to the next is `Training`; what begins and ends with an attempt
is `LearnAttempt`. The class of DI-engine's API stands before both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from ding_like.comm.channels import Batch
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.agent import TaskHandle
from ding_like.comm.rest.service import CoordinatorService
from ding_like.comm.rest.worker_link import WorkerLink
from ding_like.data.segment_file import read_with_retries
from ding_like.errors import CommError
from ding_like.pipeline.build import EnvSetting
from ding_like.pipeline.parallel.learn_attempt import LearnAttempt
from ding_like.pipeline.parallel.training import Training
from ding_like.types import Array, State
from ding_like.utils.configurable import Configurable
from ding_like.utils.registries import COMM_LEARNER_REGISTRY
from ding_like.utils.resume import ResumeStore
from ding_like.worker import BaseLearner, LearnerHook


class BaseCommLearner(ABC, Configurable):
    """Bring data to a learner and what it learned to a coordinator."""

    config: dict[str, Any] = {}

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg

    @abstractmethod
    def send_policy(self, state_dict: State) -> None:
        """Publish weights."""

    @abstractmethod
    def get_data(self, batch_size: int) -> Any:
        """Return what returns batch after batch."""

    @abstractmethod
    def send_learn_info(self, learn_info: Mapping[str, Any]) -> None:
        """Tell what was learned."""

    @abstractmethod
    def start(self) -> None:
        """Become one of the coordinator's workers."""

    @abstractmethod
    def close(self) -> None:
        """Leave the coordinator and close the learner; may be called again."""

    @property
    @abstractmethod
    def hooks4call(self) -> list[LearnerHook]:
        """Return the hooks that tell the coordinator what the learner does."""


@COMM_LEARNER_REGISTRY.register("flask_fs")
class FlaskFileSystemLearner(BaseCommLearner):
    """Learn for a coordinator that speaks HTTP; rows come and weights go as files.

    `cfg` holds `main`, a compiled config, `seed`, `num_batches` to ask for at once, `publish_interval_s`, `weights`
    (whose `dtype` says how they travel), and what WorkerLink reads. With `num_learners` above 1 it is the first of
    several on this machine, and holds what LearnerAggregator reads. DI-engine's keys `host` and `port` are accepted: a
    worker dials in, so it listens nowhere.

    A learner that was out of reach for longer than its lease makes another attempt: with the weights in its memory
    where no other attempt has published meanwhile, else from the newest saved point.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        *,
        coordinator: CoordinatorService | None = None,
        env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None,
    ) -> None:
        """Prepare; `coordinator` stands in place of the one at `cfg.coordinator`."""
        super().__init__(cfg)
        self._env_setting = env_setting
        self._model = model
        self._store = ResumeStore(Path(cfg["main"].exp_name, "learner_state"), durable=False)
        self._training: Training | None = None
        self._attempt: LearnAttempt | None = None
        self._link = WorkerLink("learner", cfg, coordinator, resources=self.deal_with_resource())

    def start(self) -> None:
        self._link.start()

    def run(self) -> None:
        """Do the coordinator's tasks until the run is over. Raises what a task raised, after the coordinator knows."""
        self._link.agent.run(self._do)

    def stop(self) -> None:
        """End the current task soon and claim no more; may be called from a signal handler."""
        self._link.stop()

    def close(self) -> None:
        with ExitStack() as parts:  # all are closed, also where closing one of them fails
            parts.callback(self._link.close)
            if self._training is not None:
                parts.callback(self._training.close)
            self._end_attempt()
        self._training = None

    def __del__(self) -> None:
        if hasattr(self, "_link"):  # the constructor came to its end
            self.close()

    # --- the coordinator's side

    def deal_with_resource(self) -> dict[str, Any]:
        """Return what this process has to offer."""
        return {"gpu": float(torch.cuda.device_count())}

    def deal_with_learner_start(self, task_info: Mapping[str, Any]) -> None:
        """Begin an attempt at `task_info`, a task of kind 'learn' as a dict; build policy and learner if need be."""
        task = m.Task(**task_info)
        self._begin(task, TaskHandle(task))

    def deal_with_get_data(self) -> dict[str, Any]:
        """Return what the learner asks for: the fields of messages.Sample."""
        return self._begun()[0].demand()

    def deal_with_learner_learn(self, data: m.SampleReply) -> dict[str, Any]:
        """Train on the batches of one reply, one after another; return the learner's info."""
        attempt, training = self._begun()
        attempt.take(data, lambda batch: training.learner.train(batch, data.env_step))
        return training.learner.learn_info

    def _do(self, task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        """Do a task; it is called again where the attempt was taken away."""
        attempt = self._begin(task, handle)
        try:
            return attempt.learn()
        finally:
            self._end_attempt()

    def _begin(self, task: m.Task, handle: TaskHandle) -> LearnAttempt:
        """Begin an attempt; the one before it, if any, is over."""
        self._end_attempt()
        published_by = None if task.policy is None else task.policy.attempt
        if self._training is None or not self._training.goes_on(task.attempt, published_by, self._link.run_id):
            self._training = self._build()
            if task.attempt > 1:
                self._training.go_on_from_saved()
        self._training.begin(task.attempt)
        self._attempt = LearnAttempt(task, handle, link=self._link, training=self._training, cfg=self._cfg)
        return self._attempt

    def _build(self) -> Training:
        if self._training is not None:
            self._training.close()
        return Training(
            self._cfg,
            run_id=self._link.run_id,
            store=self._store,
            hooks=self.hooks4call,
            get_data=self.get_data,
            env_setting=self._env_setting,
            model=self._model,
        )

    def _end_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.close(is_done=False)

    def _begun(self) -> tuple[LearnAttempt, Training]:
        if self._attempt is None or self._training is None:
            raise CommError("the learner has no task: it works for a coordinator only.")
        return self._attempt, self._training

    # --- the learner's side

    @property
    def hooks4call(self) -> list[LearnerHook]:
        return [
            SendPolicyHook("send_policy_before_run", position="before_run", ext_args={"comm": self}),
            SendLearnInfoHook("send_learn_info_after_iter", position="after_iter", ext_args={"comm": self}),
            SendPolicyHook("send_policy_after_run", position="after_run", ext_args={"comm": self}),
        ]

    def policy_state(self) -> State:
        """Return what collectors load: the whole state of the collect mode, and by what its envs are normalised."""
        return self._begun()[1].acting_state()

    def send_policy(self, state_dict: State) -> None:
        """Have weights published soon as the learner's present version, if that is newer than the attempt's last."""
        self._begun()[0].publish(state_dict)

    def get_data(self, batch_size: int) -> Callable[[], Batch | None]:
        """Return what waits for the next batch; None from it: the task is to be finished.

        Batches are fetched ahead of need by a thread. Raises CommError if no data come for ten minutes.
        """
        self._begun()[0].open_source(batch_size)
        return lambda: self._begun()[0].next_batch()

    def send_learn_info(self, learn_info: Mapping[str, Any]) -> None:
        """Report an update with the batch given out last; many reports travel together."""
        self._begun()[0].report(learn_info)

    @staticmethod
    def load_data_fn(path: str, meta: Mapping[str, Any], decompressor: Any) -> dict[str, Array]:
        """Return the columns of the segment file `path`; `meta` has its rows, sha256 and nbytes.

        `decompressor` is DI-engine's; segments are not compressed. Raises SegmentError for a file that is not as
        announced.
        """
        file = Path(path)
        name = file.name.removesuffix(".safetensors")
        return read_with_retries(file.parent, name, rows=meta["rows"], sha256=meta["sha256"], nbytes=meta["nbytes"])[0]


class SendPolicyHook(LearnerHook):
    """Publish the learner's weights through `ext_args['comm']`."""

    default_priority = 10

    def __call__(self, engine: BaseLearner) -> None:
        comm: FlaskFileSystemLearner = self.ext_args["comm"]
        comm.send_policy(comm.policy_state())


class SendLearnInfoHook(LearnerHook):
    """Report what the learner did through `ext_args['comm']`."""

    default_priority = 30

    def __call__(self, engine: BaseLearner) -> None:
        info = engine.learn_info
        # The hooks of an iteration run before it is counted.
        self.ext_args["comm"].send_learn_info({**info, "learner_step": info["learner_step"] + 1})


def create_comm_learner(cfg: Mapping[str, Any]) -> BaseCommLearner:
    """Build the comm learner that `cfg.type` (or DI-engine's `comm_learner_type`) names.

    `import_names` says where it may be registered. Raises RegistryError (a KeyError) for an unknown name.
    """
    name = cfg.get("comm_learner_type") or cfg.get("type") or "flask_fs"
    learner: BaseCommLearner = COMM_LEARNER_REGISTRY.get(name, cfg.get("import_names") or ())(cfg)
    return learner
