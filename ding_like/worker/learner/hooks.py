"""Load, save, show and reduce around a learner's iterations; hooks run in order of priority, lower first."""

from __future__ import annotations

import bisect
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from ding_like.errors import ConfigError, RegistryError, TrainingError
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.utils.di_engine_checkpoint import from_di_engine
from ding_like.utils.files import is_full, when_there_is_room
from ding_like.utils.registries import LEARNER_HOOK_REGISTRY

if TYPE_CHECKING:
    from ding_like.worker.learner.base import BaseLearner

logger = logging.getLogger(__name__)

POSITIONS = ("before_run", "after_run", "before_iter", "after_iter")

_by_priority = attrgetter("priority")


class Hook(ABC):
    """Carry a name and a priority; DI-engine's root of all hooks."""

    def __init__(self, name: str, priority: float = 100, *, ext_args: Mapping[str, Any] | None = None) -> None:
        if priority < 0:
            raise ConfigError(f"hook '{name}' has priority {priority}; give a number from 0 (first) upwards.")
        self._name = name
        self._priority = priority
        self.ext_args = dict(ext_args or {})

    @property
    def name(self) -> str:
        return self._name

    @property
    def priority(self) -> float:
        return self._priority

    @abstractmethod
    def __call__(self, engine: Any) -> Any:
        """Do the hook's work with `engine`, the part that it hangs on."""


class LearnerHook(Hook):
    """Run at one position of a learner, which is the `engine` of the call.

    `default_priority` is what the short form of the config (`<type>_<position>: value`) gives a hook.
    """

    default_priority: float = 100

    def __init__(self, *args: Any, position: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if position not in POSITIONS:
            raise ConfigError(f"hook '{self.name}' has position '{position}'; choose one of {', '.join(POSITIONS)}.")
        self._position = position

    @property
    def position(self) -> str:
        return self._position

    @classmethod
    def ext_args_of(cls, value: Any) -> dict[str, Any] | None:
        """Read the value of the short form: True is on, a number is a frequency; return None to leave the hook out."""
        if isinstance(value, bool):
            return {} if value else None
        if isinstance(value, (int, float)):
            return {"freq": int(value)}
        raise ConfigError(f"{cls.__name__} cannot be set by {value!r}; give a number of iterations, True or False.")


class PeriodicHook(LearnerHook):
    """Hold `freq`, in iterations: the hook's turn is where `last_iter % freq == 0`."""

    def __init__(self, *args: Any, position: str, **kwargs: Any) -> None:
        super().__init__(*args, position=position, **kwargs)
        self._freq = int(self.ext_args.get("freq", 1))
        if self._freq < 1:
            raise ConfigError(f"hook '{self.name}' has frequency {self._freq}; give a number of iterations from 1.")


@LEARNER_HOOK_REGISTRY.register("load_ckpt")
class LoadCkptHook(LearnerHook):
    """Load the checkpoint at `load_path` into policy and counters."""

    default_priority = 20

    @classmethod
    def ext_args_of(cls, value: Any) -> dict[str, Any] | None:
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


@LEARNER_HOOK_REGISTRY.register("save_ckpt")
class SaveCkptHook(PeriodicHook):
    """Save policy and counters as `iteration_{n}.pth.tar`, or at once under `ckpt_name` while the learner has one."""

    default_priority = 20

    def __call__(self, engine: BaseLearner) -> None:
        if (engine.train_iter % self._freq and engine.ckpt_name is None) or engine.rank != 0:
            return
        path = engine.ckpt_dir / (engine.ckpt_name or f"iteration_{engine.train_iter}.pth.tar")
        counters = {"last_iter": engine.train_iter, "last_step": engine.collector_envstep}
        parts = {name: part.state_dict() for name, part in engine.checkpoint_parts.items()}
        known = {name: state for name, state in parts.items() if state}
        saved = {**engine.policy.state_dict(), **known, **counters}
        if self._is_periodic(engine):
            try:
                save_state(path, saved)
            except OSError as error:
                if not is_full(error):
                    raise
                logger.warning("%s is not saved, the next one may be: the disk is full (%s)", path, error)
                return
        else:  # the last model, or the best one, comes no second time
            when_there_is_room(lambda: save_state(path, saved), tell=logger.warning)
        engine.info(f"{engine.instance_name} saved {path}")

    def _is_periodic(self, engine: BaseLearner) -> bool:
        return self.position == "after_iter" and engine.ckpt_name is None


@LEARNER_HOOK_REGISTRY.register("log_show")
class LogShowHook(PeriodicHook):
    """Write the averages of the last iterations to the log and to the metrics."""

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
    """Count the updates that were not finite (the policy applies none of them), and end the run where it must end.

    What is needed to look into it is saved then: the last batch, the last losses, the weights.
    """

    default_priority = 20

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen = 0

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
    """Put the mean over all learners in the place of each scalar of an iteration; one learner's are that already.

    Learners average through their reducer, and log what one learner with the whole batch would (to rounding). It takes
    one message of a few numbers each `freq` iterations; where the hook is off, or its turn has not come, nothing is
    sent, and the first learner logs its own share's values. A reducer without `mean` leaves it to torch.distributed.
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


def register_learner_hook(name: str, hook_type: type[LearnerHook]) -> None:
    """Make `hook_type` buildable by `name` from a config. Raises RegistryError if it is no LearnerHook class."""
    if not (isinstance(hook_type, type) and issubclass(hook_type, LearnerHook)):
        raise RegistryError(f"hook '{name}' is {hook_type!r}; register a subclass of LearnerHook.")
    LEARNER_HOOK_REGISTRY.register(name)(hook_type)


def add_learner_hook(hooks: dict[str, list[LearnerHook]], hook: LearnerHook) -> None:
    """Insert a hook at its position, after those of equal priority; changes `hooks`."""
    bisect.insort_right(hooks[hook.position], hook, key=_by_priority)


def merge_hooks(
    hooks1: Mapping[str, list[LearnerHook]], hooks2: Mapping[str, list[LearnerHook]]
) -> dict[str, list[LearnerHook]]:
    """Join two dicts of hooks by position into a new one; equal priorities keep their order, `hooks1` first."""
    if hooks1.keys() != hooks2.keys():
        raise ConfigError(f"hooks differ in their positions: {sorted(hooks1)} and {sorted(hooks2)}.")
    return {position: sorted([*hooks1[position], *hooks2[position]], key=_by_priority) for position in hooks1}


def show_hooks(hooks: Mapping[str, list[LearnerHook]]) -> str:
    """Return a table of hooks, a line for each: its position, its name and its priority, in the order they run in."""
    rows = [(position, hook.name, f"{hook.priority:g}") for position, each in hooks.items() for hook in each]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def build_learner_hook_by_cfg(cfg: Mapping[str, Any]) -> dict[str, list[LearnerHook]]:
    """Build hooks from `{'hook': {...}}` or from the inner dict, by position and in order of priority.

    An entry is either short, `<type>_<position>: value` (`save_ckpt_after_iter: 1000`), or full, `<any key>: {type,
    position, priority=100, name, ext_args}`.
    """
    hooks: dict[str, list[LearnerHook]] = {position: [] for position in POSITIONS}
    for key, value in cfg.get("hook", cfg).items():
        hook = _full_form(key, value) if isinstance(value, Mapping) else _short_form(key, value)
        if hook is not None:
            add_learner_hook(hooks, hook)
    return hooks


def _full_form(key: str, value: Mapping[str, Any]) -> LearnerHook:
    missing = [name for name in ("type", "position") if name not in value]
    if missing:
        raise ConfigError(f"hook '{key}' lacks {' and '.join(missing)}; give type, position, priority and ext_args.")
    settings = {name: item for name, item in value.items() if name not in ("type", "name", "priority")}
    return _build(value["type"], value.get("name", key), value.get("priority", 100), **settings)


def _short_form(key: str, value: Any) -> LearnerHook | None:
    hook_type, _, when = key.rpartition("_")
    hook_type, _, side = hook_type.rpartition("_")
    position = f"{side}_{when}"
    if not hook_type or position not in POSITIONS:
        raise ConfigError(f"hook '{key}' names no position; end it in one of {', '.join('_' + p for p in POSITIONS)}.")
    cls = LEARNER_HOOK_REGISTRY.get(hook_type)
    ext_args = cls.ext_args_of(value)
    if ext_args is None:
        return None
    return _build(hook_type, key, cls.default_priority, position=position, ext_args=ext_args)


def _build(hook_type: str, name: str, priority: float, **settings: Any) -> LearnerHook:
    hook: LearnerHook = LEARNER_HOOK_REGISTRY.build(hook_type, name, priority, **settings)
    return hook
