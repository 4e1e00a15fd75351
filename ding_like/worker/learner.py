"""Learner: trains a policy on batches, with hooks that load, save, log and check; hooks run in order of priority."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import torch
from easydict import EasyDict

from ding_like.config.tree import deep_merge
from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.data.expert_rows import ExpertRows
from ding_like.data.rows import LearnMode, adapt_learn_mode, as_batch
from ding_like.errors import ConfigError, TrainingError
from ding_like.types import CheckpointPart, Config, Info, PolicyLike, Reducer, Report, RewardModelLike, State
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds, Configurable
from ding_like.utils.checkpoint import from_di_engine, load_state, save_state
from ding_like.utils.files import is_full, when_there_is_room
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.metrics import as_metrics_writer
from ding_like.utils.registries import LEARNER_HOOK_REGISTRY, LEARNER_REGISTRY
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state
from ding_like.worker.commander import Weights
from ding_like.worker.learner_hooks import LearnerHook, PeriodicHook, add_learner_hook, build_learner_hook_by_cfg
from ding_like.worker.learner_hooks import merge_hooks as merge_hooks
from ding_like.worker.learner_hooks import register_learner_hook as register_learner_hook
from ding_like.worker.learner_hooks import show_hooks as show_hooks

logger = logging.getLogger(__name__)

WINDOW = 10  # iterations that an average covers, as in the original


class LogDict(dict[str, Any]):
    """Values by name; a tensor that is part of a graph is detached when it is set, so that the graph is freed."""

    def __init__(self, values: Report | None = None) -> None:
        super().__init__({name: _detached(value) for name, value in values.items()} if values else {})

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(name, _detached(value))

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value


class LearnerMonitor:
    """Scalars of the last iterations."""

    def __init__(self, names: Iterable[str], *, window: int = WINDOW) -> None:
        self.names = list(names)
        self._recent: deque[Mapping[str, Any]] = deque(maxlen=window)

    def record(self, scalars: Report) -> None:
        """Keep a reference to one iteration's scalars; what is added to them later counts."""
        self._recent.append(scalars)

    def averages(self) -> dict[str, float]:
        """Return the mean of each name over the window; waits for the device. Names without a value are left out."""
        columns = {name: [row[name] for row in self._recent if name in row] for name in self.names}
        return {name: _mean(values) for name, values in columns.items() if values}

    def state_dict(self) -> State:
        """Return copies on the host, of the same types, so that later averages are equal to the last bit."""
        return {"recent": [{name: _copied(row[name]) for name in self.names if name in row} for row in self._recent]}

    def load_state_dict(self, state: State) -> None:
        self._recent.clear()
        self._recent.extend(state["recent"])


def _detached(value: object) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def _mean(values: list[Any]) -> float:
    if all(isinstance(value, torch.Tensor) for value in values):
        if len({value.shape for value in values}) > 1:  # some were averaged over learners, some were not
            values = [value.float().mean() for value in values]
        return float(torch.stack(values).float().mean())
    return float(np.mean([float(value) for value in values]))


def _copied(value: object) -> Any:
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def create_learner(cfg: Config, **kwargs: Any) -> BaseLearner:
    """Build the learner that `cfg.type` names; `kwargs` go to its constructor.

    DI-engine's keys `learner_type` and `learner.learner_type` name it too; `import_names` are imported
    first. Raises RegistryError (a KeyError) for an unknown name.
    """
    learner_type = cfg.get("learner", {}).get("learner_type") or cfg.get("learner_type") or cfg.get("type")
    if not learner_type:
        raise ConfigError("the learner's config has no 'type'; give one, for example type='base'.")
    learner: BaseLearner = LEARNER_REGISTRY.get(learner_type, cfg.get("import_names", ()))(cfg, **kwargs)
    return learner


_PLACE = ("replay_buffer_idx", "replay_unique_id")  # what names a row of a buffer
_SAVE_HOOK = "save_ckpt_after_run"  # the name by which save_checkpoint finds its hook


class CountVar:
    """Count that several parts read and hooks may set."""

    def __init__(self, init_val: int = 0) -> None:
        self.val = init_val

    def add(self, num: int) -> None:
        self.val += num

    def update(self, val: int) -> None:
        self.val = val

    def __repr__(self) -> str:
        return f"CountVar({self.val})"


@LEARNER_REGISTRY.register("base")
class BaseLearner(Configurable):
    """Learner that turns batches into updates of a policy; hooks run before and after.

    One `train` call runs the `before_iter` hooks once, then for each minibatch of the policy: gradient, reduction,
    application, the `after_iter` hooks, and `last_iter += 1`. No tensor is read: what a policy reports is kept
    by reference until a hook shows it.
    """

    config: dict[str, Any] = {
        "type": "base",
        # Updates after which training stops, where neither a call nor the command line gives a limit.
        "train_iterations": int(1e9),
        "dataloader": {"num_workers": 0},
        # Write policy.info() to the log when the policy is set.
        "log_policy": True,
        "is_multitask_pipeline": False,
        # Of several learners, only the first averages losses for its log.
        "only_monitor_rank0": True,
        # Hooks of the learner, as type_position: value; hooks of your own go here.
        "hook": {
            # File of a checkpoint that is loaded before the first update; "": none.
            "load_ckpt_before_run": "",
            # Updates between two reports of averaged losses in the log and the metrics.
            "log_show_after_iter": 100,
            # Updates between two counts of those that were not finite.
            "check_finite_after_iter": 100,
            # Updates between two checkpoints, ckpt/iteration_N.pth.tar.
            "save_ckpt_after_iter": 10000,
            # Save a checkpoint when the run ends.
            "save_ckpt_after_run": True,
        },
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "train_iterations": FROM_1,
        "dataloader.num_workers": FROM_0,
        "hook.log_show_after_iter": FROM_1,
        "hook.check_finite_after_iter": FROM_1,
        "hook.save_ckpt_after_iter": FROM_1,
    }
    config_free = ("hook",)  # hooks of one's own
    without_effect: ClassVar[Mapping[str, str]] = {
        "dataloader.num_workers": "batches come from the replay buffer, or from the prefetcher of a parallel run",
        "is_multitask_pipeline": "every pipeline uses the same learner",
    }

    # A method of a sub-class, or a function set by a comm learner: given a batch size, it returns what returns batch
    # after batch, or one batch each time it is called: a list of rows, or of functions of which each returns a row.
    # None ends the data. Any: it may be either.
    get_data: Any = None
    # Sends the learners that are given batches by this one their shares of one, and returns this learner's.
    share_batch: Callable[[TransitionBatch], TransitionBatch] | None = None
    # The next batch, or None after the last; a sub-class may have a method of this name.
    _next_data: Any = None

    def __init__(
        self,
        cfg: Config,
        policy: PolicyLike = None,  # any named tuple of a learn mode, ours or in DI-engine's style
        tb_logger: object = None,  # MetricsSink or SummaryWriter
        dist_info: tuple[int, int] | None = None,
        exp_name: str = "default_experiment",
        instance_name: str = "learner",
        *,
        rng: np.random.Generator | None = None,
        reducer: Reducer | None = None,
    ) -> None:
        """Build the hooks, open the log, and take the policy if there is one already.

        `dist_info` is (rank, number of learners). `rng` shuffles minibatches. Without `tb_logger` the first learner
        opens a TensorBoard file of its own beside its log.
        """
        self._cfg = EasyDict(deep_merge(self.config, cfg))
        self.exp_name = exp_name
        self.instance_name = instance_name
        self.rank, self.world_size = (0, 1) if dist_info is None else dist_info
        self._is_watched = self.rank == 0 or not self._cfg.only_monitor_rank0
        self._rng = make_rng(0, instance_name) if rng is None else rng
        self.reducer = reducer  # None: this learner has all the gradients

        self.logger, self._own_tb_logger = build_logger(
            Path(exp_name, "log", instance_name), instance_name, need_tb=tb_logger is None and self._is_watched
        )
        self.tb_logger = self._own_tb_logger if tb_logger is None else tb_logger
        self.metrics = as_metrics_writer(self.tb_logger)
        # What a checkpoint holds besides the policy, by name; a part with nothing to save is left out.
        self.checkpoint_parts: dict[str, CheckpointPart] = {}

        self.last_iter = CountVar()
        self._collector_envstep = 0
        self.ckpt_name: str | None = None  # file name asked for while `save_checkpoint(ckpt_name)` runs
        # Priorities of the last call with `replay_buffer_idx` and `replay_unique_id`; empty without any.
        self.priority_info: dict[str, Any] = {}
        self._learner_done = False
        self.monitor: LearnerMonitor | None = None
        # Values of the last iteration by kind.
        self.log_buffer = {"scalar": LogDict(), "scalars": LogDict(), "histogram": LogDict()}
        hook_cfg = dict(self._cfg.hook)
        if self.world_size > 1:
            hook_cfg.setdefault("log_reduce_after_iter", True)
        self._hooks = build_learner_hook_by_cfg(hook_cfg)
        self.reward_model: RewardModelLike | None = None  # gives batches their rewards; None: those of the env stay
        self.expert_rows: ExpertRows | None = None  # rows of an expert that join each batch
        self._mode: LearnMode | None = None
        self._takes_rows = False
        self._last_minibatch: Any = None  # kept to be looked into if training goes wrong
        self._last_info: dict[str, Any] = {}  # of that minibatch
        self._trained_on: Any = None  # what the minibatches under way are of
        self._num_minibatches = 0  # of it so far
        self._reward_info: Info = {}  # of the reward model's last updates
        self._grad_kwargs: Mapping[str, Any] = {}  # of the caller of `train`, for the policy's `grad`
        self._started_s = perf_counter()
        if policy is not None:
            self.policy = policy

    def train(self, data: Any, envstep: int = -1, policy_kwargs: Mapping[str, object] | None = None) -> list[Info]:
        """Update the policy on `data` and return its reports, one dict for each minibatch.

        `data` is a TransitionBatch, a list of mappings, or what the policy's own `minibatches` takes. `envstep` is
        the collector's step count, -1 if not known. `policy_kwargs` are passed to the policy's `grad` (for a policy in
        DI-engine's style, to its `forward`). Reported values may be tensors that are still being computed.
        Raises ConfigError if priorities come with more than one minibatch.
        """
        infos: list[dict[str, Any]] = []
        for minibatch in self.minibatches(data, envstep, policy_kwargs):
            infos.append(self.compute_gradients(minibatch))
            self.apply_gradients()
        return infos

    def minibatches(
        self, data: Any, envstep: int = -1, policy_kwargs: Mapping[str, object] | None = None
    ) -> Iterator[Any]:  # Any: of whatever the policy learns from
        """Yield the policy's minibatches of `data`, each for `compute_gradients` and then `apply_gradients`.

        Runs the `before_iter` hooks first. The arguments are those of `train`, which is a loop over the three.
        """
        mode = self._mode_or_fail()
        if envstep >= 0:
            self.collector_envstep = envstep
        batch = data if self._takes_rows else as_batch(data)
        self.priority_info, self._trained_on, self._num_minibatches = {}, data, 0
        self.call_hook("before_iter")
        self._started_s = perf_counter()
        kwargs = policy_kwargs or {}
        # The adapter of a policy in DI-engine's style calls `forward` to make the minibatches.
        for_forward, self._grad_kwargs = (kwargs, {}) if self._takes_rows else ({}, kwargs)
        source = data if batch is None else batch
        if self.reward_model is not None or self.expert_rows is not None:
            source = self._prepared(source)
        yield from mode.minibatches(source, self._rng, **for_forward)
        self._trained_on = None

    def use_reward_model(self, model: RewardModelLike) -> None:
        """Give batches the rewards of a model, which learns from each batch first, and save it with the policy."""
        self.reward_model = self.checkpoint_parts["reward_model"] = model
        if self.monitor is not None:
            self.monitor.names += [name for name in model.monitored if name not in self.monitor.names]

    def use_expert_rows(self, rows: ExpertRows, *, pretrain_updates: int = 0) -> None:
        """Have rows of an expert join each batch; a new run begins with updates on these rows alone, if any."""
        self.expert_rows = rows
        if pretrain_updates:
            self.register_hook(PretrainHook("pretrain", 30, position="before_run", ext_args={"n": pretrain_updates}))

    def pretrain(self, updates: int) -> None:
        """Train on the expert's rows alone; these updates count."""
        assert self.expert_rows is not None, "a policy that learns from an expert"
        for _ in range(updates):
            rows = self.expert_rows.alone(int(self._mode_or_fail().get_attribute("batch_size")))
            self.train(rows if self.share_batch is None else self.share_batch(rows))

    def _prepared(self, data: Any) -> Any:
        """Return a batch with the reward model's rewards, and what follows from them, and with the expert's rows."""
        batch = as_batch(data.batch if isinstance(data, EpisodeBatch) else data)
        if batch is None:
            raise ConfigError(
                f"reward models and experts' rows take rows in columns, and this policy learns from "
                f"{type(data).__name__}: choose another policy or buffer."
            )
        if self.expert_rows is not None:
            batch = self.expert_rows.join(batch)
        if self.reward_model is not None:
            self.reward_model.collect(batch)
            self._reward_info = {**self._reward_info, **self.reward_model.train()}
            batch = self._mode_or_fail().with_returns(self.reward_model.estimate(batch))
        return batch.to_list() if self._takes_rows else batch

    def compute_gradients(self, minibatch: Any) -> Info:
        """Compute the gradient of a minibatch, which stays in the policy, and return what the policy reported.

        Raises ConfigError if priorities come with more than one minibatch.
        """
        self._last_minibatch = minibatch
        self._last_info, priority = self._mode_or_fail().grad(minibatch, **self._grad_kwargs)
        if self._reward_info:
            self._last_info = {**self._last_info, **self._reward_info}
        if priority is not None and self.expert_rows is not None:
            priority = priority[: len(priority) - self.expert_rows.num_joined]
        self._num_minibatches += 1
        if priority is not None and len(priority):
            self.priority_info = _priority_info(priority, self._trained_on)
        if self.priority_info and self._num_minibatches > 1:
            raise ConfigError(
                f"the policy gave priorities in a train call of {self._num_minibatches} or more minibatches; they can "
                "only be matched to the batch where there is one. Set policy.priority=False, or one minibatch a call."
            )
        return self._last_info

    def apply_gradients(self, info: Report | None = None) -> None:
        """Reduce and apply the gradient that the policy holds, run the `after_iter` hooks, and count the iteration.

        `info` is what the policy reported of it, where another process computed it.
        """
        if self.reducer is not None:
            self.reducer.reduce()
        self._mode_or_fail().apply()
        self.count_update(self._last_info if info is None else info)

    def count_update(self, info: Report) -> None:
        """Log what the policy reported of an update that was applied, run the `after_iter` hooks, and count it."""
        self._record(info, perf_counter() - self._started_s)
        self.call_hook("after_iter")
        self.last_iter.val += 1
        self._started_s = perf_counter()

    def _record(self, info: Report, train_time_s: float) -> None:
        """Keep what the policy reported; the prefixes '[scalars]' and '[histogram]' give the kind of a value."""
        scalar = LogDict({**info, "train_time": train_time_s})
        buffer = self.log_buffer
        buffer["scalar"], buffer["scalars"], buffer["histogram"] = scalar, LogDict(), LogDict()
        for name in [name for name in info if name.startswith("[")]:
            kind, _, plain_name = name[1:].partition("]")
            if kind in buffer:
                buffer[kind][plain_name] = scalar.pop(name)
        if self.monitor is not None:
            self.monitor.record(scalar)

    def _mode_or_fail(self) -> LearnMode:
        if self._mode is None:
            raise ConfigError(f"{self.instance_name} has no policy; set learner.policy = policy.learn_mode first.")
        return self._mode

    def setup_dataloader(self) -> None:
        """Set up `start` to train on the batches of `get_data`, which is called with the policy's batch size.

        Raises ConfigError while `get_data` is not set.
        """
        if self.get_data is None:
            raise ConfigError(f"{self.instance_name} has no source of data; set learner.get_data first.")
        size = int(self._mode_or_fail().get_attribute("batch_size"))
        first = self.get_data(size)
        if callable(first):
            self._next_data = first
            return
        batches = chain([first], iter(partial(self.get_data, size), None))
        self._next_data = lambda: _fetched(next(batches, None))

    def start(self) -> None:
        """Train on batch after batch until there are no more, or `train_iterations` are done; hooks run around it.

        Iterations of a checkpoint that a hook loads do not count.
        """
        if self._next_data is None:
            self.setup_dataloader()
        self._learner_done = False
        before = self.train_iter
        self.call_hook("before_run")
        end = self._cfg.train_iterations + self.train_iter - before
        while self.train_iter < end:
            data = self._next_data()
            if data is None:
                break
            self.train(data)
        self._learner_done = True
        self.call_hook("after_run")

    def register_hook(self, hook: LearnerHook) -> None:
        """Add a hook at its position, after those of equal priority."""
        add_learner_hook(self._hooks, hook)

    def remove_hooks(self, kind: type[LearnerHook]) -> None:
        """Take out all hooks of a class."""
        for position, hooks in self._hooks.items():
            self._hooks[position] = [hook for hook in hooks if not isinstance(hook, kind)]

    def call_hook(self, name: str) -> None:
        """Run the hooks of the position `name` in order of priority."""
        for hook in self._hooks[name]:
            hook(self)

    def save_checkpoint(self, ckpt_name: str | None = None) -> None:
        """Save through the hook 'save_ckpt_after_run' (or as it would), under `ckpt_name` if given."""
        registered = [hook for hook in self._hooks["after_run"] if hook.name == _SAVE_HOOK]
        hook = registered[0] if registered else SaveCkptHook(_SAVE_HOOK, position="after_run")
        self.ckpt_name = ckpt_name
        try:
            hook(self)
        finally:
            self.ckpt_name = None

    def save_evidence(self) -> Path:
        """Save the last minibatch, the last values it gave and the weights, and return the file."""
        path = Path(self.exp_name, f"nonfinite_{self.instance_name}_iter{self.train_iter}.pt")
        batch = as_batch(self._last_minibatch)
        columns = {} if batch is None else {name: np.asarray(column) for name, column in batch.columns.items()}
        bad = [name for name, column in columns.items() if column.dtype.kind == "f" and not np.isfinite(column).all()]
        evidence = {
            "batch": columns,
            "columns_not_finite": bad,
            "last_values": {name: np.asarray(value) for name, value in self.log_buffer["scalar"].items()},
            "policy": self._mode_or_fail().state_dict(),
            "train_iter": self.train_iter,
        }
        save_state(path, evidence)
        return path

    def info(self, s: str) -> None:
        """Write a line to the learner's text log."""
        self.logger.info(s)

    def debug(self, s: str) -> None:
        """Write a line to the learner's text log if its level is DEBUG."""
        self.logger.debug(s)

    def state_dict(self) -> State:
        """Return counters, monitor and generator for an exact resume; the policy saves itself."""
        return {
            "last_iter": self.last_iter.val,
            "collector_envstep": self.collector_envstep,
            "monitor": None if self.monitor is None else self.monitor.state_dict(),
            "rng": rng_state(self._rng),
            **{name: part.state_dict() for name, part in self._own_parts().items()},
        }

    def _own_parts(self) -> dict[str, CheckpointPart]:
        """Return what prepares batches and is saved with the learner."""
        parts = {"reward_model": self.reward_model, "expert_rows": self.expert_rows}
        return {name: part for name, part in parts.items() if part is not None}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned; the policy must be set before."""
        set_rng_state(self._rng, state["rng"])
        self.last_iter.update(state["last_iter"])
        self.collector_envstep = state["collector_envstep"]
        if self.monitor is not None and state["monitor"] is not None:
            self.monitor.load_state_dict(state["monitor"])
        for name, part in self._own_parts().items():
            part.load_state_dict(state[name])

    def close(self) -> None:
        """Close the learner's own files; may be called again."""
        if self._own_tb_logger is not None:
            self._own_tb_logger.close()
        close_logger(self.logger)

    @property
    def policy(self) -> LearnMode:
        """Learn mode of the policy; one in DI-engine's style has our fields added."""
        return self._mode_or_fail()

    @policy.setter
    def policy(self, policy: PolicyLike) -> None:
        self._mode = adapt_learn_mode(policy)
        self._takes_rows = self._mode is not policy
        if self._is_watched:
            self.monitor = LearnerMonitor([*(self._mode.monitor_vars() or ()), "train_time"])
        if self._cfg.log_policy:
            self.info(str(self._mode.info()))

    @property
    def learn_info(self) -> Info:
        """Progress of the learner, for the commander and the buffer."""
        done = {"learner_done": self._learner_done}
        return {"learner_step": self.last_iter.val, "priority_info": self.priority_info, **done}

    @property
    def train_iter(self) -> int:
        """Number of iterations done."""
        return self.last_iter.val

    @property
    def collector_envstep(self) -> int:
        """Env steps of the collector as of the last `train` call that passed them."""
        return self._collector_envstep

    @collector_envstep.setter
    def collector_envstep(self, value: int) -> None:
        self._collector_envstep = value

    @property
    def ckpt_dir(self) -> Path:
        """Folder of this learner's checkpoints."""
        name = "ckpt" if self.instance_name == "learner" else f"ckpt_{self.instance_name}"
        return Path(self.exp_name, name)


def _fetched(batch: Any) -> Any:
    """Return a batch in which functions are what they return; anything but a list as it is."""
    return [each() if callable(each) else each for each in batch] if isinstance(batch, (list, tuple)) else batch


def _priority_info(priority: Any, data: Any) -> Info:
    batch = as_batch(data)
    # Windows have a priority each, so their places are not among their rows' columns.
    columns = getattr(data, "per_window", {}) if batch is None else batch.columns
    if batch is None and isinstance(data, list) and all(isinstance(row, Mapping) for row in data):  # rows do not stack
        columns = {name: [row.get(name) for row in data] for name in _PLACE if any(name in row for row in data)}
    return {"priority": priority, **{name: columns.get(name) for name in _PLACE}}


@LEARNER_HOOK_REGISTRY.register("load_ckpt")
class LoadCkptHook(LearnerHook):
    """Hook that loads the checkpoint at `load_path` into policy and counters."""

    default_priority = 20

    @classmethod
    def ext_args_of(cls, value: object) -> Weights | None:
        if not isinstance(value, str):
            raise ConfigError(f"load_ckpt takes the path of a checkpoint, got {value!r}.")
        return {"load_path": value} if value else None

    def __call__(self, engine: BaseLearner) -> None:
        path = self.ext_args.get("load_path", "")
        if not path:
            return
        state = from_di_engine(load_state(path), engine.policy.state_dict)
        last_iter, last_step = state.pop("last_iter", None), state.pop("last_step", None)
        for name, part in engine.checkpoint_parts.items():
            if name in state:
                part.load_state_dict(state.pop(name))
        engine.policy.load_state_dict(state)
        if last_iter is not None:
            engine.last_iter.update(int(last_iter))
        if last_step is not None:
            engine.collector_envstep = int(last_step)
        engine.info(f"{engine.instance_name} loaded {path}: iteration {engine.train_iter}")


class PretrainHook(LearnerHook):
    """Hook that trains the policy of a new run on an expert's rows alone, before anything is collected."""

    def __call__(self, engine: BaseLearner) -> None:
        if engine.train_iter == 0:
            engine.pretrain(int(self.ext_args["n"]))


@LEARNER_HOOK_REGISTRY.register("save_ckpt")
class SaveCkptHook(PeriodicHook):
    """Hook that saves policy and counters as `iteration_{n}.pth.tar`, or at once under the learner's `ckpt_name`."""

    default_priority = 20

    def __call__(self, engine: BaseLearner) -> None:
        if (engine.train_iter % self._freq and engine.ckpt_name is None) or engine.rank != 0:
            return
        path = engine.ckpt_dir / (engine.ckpt_name or f"iteration_{engine.train_iter}.pth.tar")
        counters = {"last_iter": engine.train_iter, "last_step": engine.collector_envstep}
        parts = {name: part.state_dict() for name, part in engine.checkpoint_parts.items()}
        known = {name: state for name, state in parts.items() if state}
        saved = {**engine.policy.state_dict(), **known, **counters}
        if self.position == "after_iter" and engine.ckpt_name is None:
            try:
                save_state(path, saved)
            except OSError as error:
                if not is_full(error):
                    raise
                logger.warning("%s is not saved, the next one may be: the disk is full (%s)", path, error)
                return
        else:  # the last model, or the best one, is saved only once
            when_there_is_room(lambda: save_state(path, saved), report=logger.warning)
        engine.info(f"{engine.instance_name} saved {path}")


@LEARNER_HOOK_REGISTRY.register("log_show")
class LogShowHook(PeriodicHook):
    """Hook that writes the averages of the last iterations to the log and to the metrics."""

    default_priority = 20

    def __call__(self, engine: BaseLearner) -> None:
        if engine.train_iter % self._freq or engine.monitor is None:
            return
        values = {f"{name}_avg": value for name, value in engine.monitor.averages().items()}
        for name, group in engine.log_buffer["scalars"].items():
            values.update({f"{name}/{key}": float(value) for key, value in group.items()})
        engine.metrics.write(
            engine.instance_name, values, env_step=engine.collector_envstep, train_iter=engine.train_iter
        )
        add_histogram = getattr(engine.tb_logger, "add_histogram", None)
        if add_histogram is not None:
            for name, value in engine.log_buffer["histogram"].items():
                add_histogram(name, value, engine.train_iter)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        engine.info(f"iteration {engine.train_iter}, env step {engine.collector_envstep}: {shown}")


@LEARNER_HOOK_REGISTRY.register("check_finite")
class CheckFiniteHook(PeriodicHook):
    """Hook that counts updates that were not finite (the policy applies none of them), and ends a run that diverged.

    It saves the last batch, the last losses and the weights then.
    """

    default_priority = 20
    _seen = 0

    def __call__(self, engine: BaseLearner) -> None:
        if engine.train_iter % self._freq:
            return
        try:
            count = int(engine.policy.get_attribute("nonfinite_steps") or 0)
        except NotImplementedError:
            return  # a policy in DI-engine's style counts none
        except TrainingError as error:
            raise TrainingError(f"{error} Saved for a closer look: {engine.save_evidence()}") from error
        if count > self._seen:
            engine.logger.warning("%d updates were not finite and not applied (%d in all)", count - self._seen, count)
        self._seen = count


@LEARNER_HOOK_REGISTRY.register("log_reduce")
class LogReduceHook(PeriodicHook):
    """Hook that replaces each scalar of an iteration by its mean over all learners, every `freq` iterations.

    Learners average through their reducer, in one message, and log what one learner with the whole batch would (to
    rounding). Otherwise the first learner logs the values of its own share. A reducer without `mean` leaves it to
    torch.distributed.
    """

    default_priority = 10

    def __call__(self, engine: BaseLearner) -> None:
        scalars = engine.log_buffer["scalar"]
        if engine.train_iter % self._freq or engine.world_size == 1 or not scalars:
            return
        names = sorted(scalars)
        tensors = [value for value in scalars.values() if isinstance(value, torch.Tensor)]
        device = tensors[0].device if tensors else "cpu"
        means = torch.stack([torch.as_tensor(scalars[n], dtype=torch.float32, device=device).mean() for n in names])
        mean_of_all = getattr(engine.reducer, "mean", None) or self._distributed_mean
        scalars.update(zip(names, mean_of_all(means), strict=True))

    def _distributed_mean(self, values: torch.Tensor) -> torch.Tensor:
        if not torch.distributed.is_initialized():
            raise ConfigError(
                f"hook '{self.name}' averages over several learners, but their reducer has no method mean, and "
                "torch.distributed is not initialised: call init_process_group before training, or leave the hook out."
            )
        torch.distributed.all_reduce(values)
        return values / torch.distributed.get_world_size()
