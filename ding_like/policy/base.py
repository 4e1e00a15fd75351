"""Base of every algorithm: its four narrow views, its model and its device.

An algorithm overrides `_init_learn`, `_init_act`, `actor`, `grad`, `apply` and, where rows are not plain n-step
transitions, `segment` and `num_ready`. DI-engine's row functions are derived from these (`policy/di_engine_view.py`). A
subclass that brings `_forward_learn` or `_forward_collect` of its own is in DI-engine's style: its modes have
DI-engine's fields only, and the parts run them through `data/rows.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from easydict import EasyDict
from torch import Tensor

from ding_like.config import declared_faults, inherited_config, without_effect
from ding_like.data.batch import EpisodeBatch, TransitionBatch, columns_to_obs
from ding_like.data.expert_rows import ExpertRows
from ding_like.data.rollout import Rollout
from ding_like.data.rows import OUR_FIELDS, CollectMode, CommandMode, EvalMode, LearnMode, check_logged, method_name
from ding_like.errors import CheckpointError, ConfigError, DingError, SchemaError, describe_error, raised_at
from ding_like.model.optimizer import OPTIMIZER_CONFIG, FlatOptimizer, check_optimizer
from ding_like.policy import di_engine_view
from ding_like.policy.model_methods import ModelMethod, build_model, check_model, model_faults
from ding_like.policy.rows import NStepRows, RowMaker, Rows
from ding_like.policy.sharing import Moving, Share, copied, load, saver
from ding_like.types import Actor, Array, Config, Info, PolicyLike, SampleUnit, State
from ding_like.utils.bounds import ABOVE_0, FINITE, FROM_0, FROM_1, SHARE, Bounds
from ding_like.utils.checkpoint import check_model_state
from ding_like.utils.registries import POLICY_REGISTRY

# Passes over the data of one collection. A million updates of 1 ms are 17 minutes, in which nothing is collected,
# evaluated or saved: more is a slip, and would look like a run that hangs.
PER_COLLECT = Bounds(1, 1_000_000)
# What is collected before an update; more is a slip too.
COLLECTED = Bounds(1, 10_000_000)

POLICY_BOUNDS: Mapping[str, Bounds] = {
    "discount_factor": SHARE,
    "nstep": FROM_1,
    "random_collect_size": FROM_0,
    "action_low": FINITE,
    "action_high": FINITE,
    "learn.update_per_collect": PER_COLLECT,
    "learn.batch_size": FROM_1,
    "learn.learning_rate": ABOVE_0,
    "learn.grad_clip_norm": ABOVE_0,
    "learn.max_nonfinite_steps": FROM_1,
    "learn.optimizer.alpha": SHARE,
    "learn.optimizer.eps": ABOVE_0,
    "learn.optimizer.momentum": SHARE,
    "learn.optimizer.weight_decay": FROM_0,
    "collect.n_sample": COLLECTED,
    "collect.n_episode": COLLECTED,
    "collect.unroll_len": FROM_1,
    "unroll_len": FROM_1,
}


def device_of(cuda: bool | str) -> torch.device:
    """Return the device that a policy section's `cuda` asks for; of one of several GPUs it may be the name, 'cuda:1'.

    Raises ConfigError where torch sees no such GPU.
    """
    if not cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError(
            f"policy.cuda is {cuda}, but torch sees no GPU: set policy.cuda=False, or install a CUDA torch."
        )
    return device_named(cuda) if isinstance(cuda, str) else torch.device("cuda")


def device_named(name: str | torch.device) -> torch.device:
    """Return the device "cpu" or "cuda:1", say. Raises ConfigError for another name, or a GPU that is not there."""
    unknown = ConfigError(f"device is {name!r}; expected 'cpu', 'cuda', or one of several GPUs: 'cuda:0'.")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise unknown from error
    if device.type not in ("cpu", "cuda"):
        raise unknown
    there = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= there:
        raise ConfigError(
            f"device is {str(device)!r}, but torch sees {there or 'no'} GPU{'s' if there > 1 else ''} here: ask for "
            "'cpu', or give the worker GPUs (num_gpus in its resources)."
        )
    return device


PAGE = "docs/own_algorithm.md"
FIELDS = ("learn", "collect", "eval", "command")


class Policy:
    """Model with its four views: for learner, collector, evaluator and commander.

    `cfg` is the policy section of the config; `model` replaces the default one; `enable_field` names the modes to
    set up (all by default).
    """

    config: dict[str, Any] = dict(
        type="",
        # Whether rows may be used only by the policy that collected them: fixed by the algorithm.
        on_policy=False,
        cuda=False,  # run the networks on the GPU
        # Sample rows by priority; the replay buffer 'advanced' does that.
        priority=False,
        # Weight the loss of each row to make up for sampling by priority.
        priority_IS_weight=False,
        discount_factor=0.97,  # discount of rewards per env step, gamma
        nstep=1,  # steps of reward in a training row (n-step return)
        random_collect_size=0,  # env steps with random actions before the first update
        # "discrete" or "continuous"; None: what the env has.
        action_space=None,
        # Lowest continuous action, one number or one per dimension; None: the env's.
        action_low=None,
        # Highest continuous action, one number or one per dimension; None: the env's.
        action_high=None,
        # Keyword arguments of the model; `type` and `import_names` choose another one.
        model=dict(),
        learn=dict(
            # Updates after each collection of `n_sample` rows; on-policy algorithms count epochs instead.
            update_per_collect=1,
            batch_size=64,  # rows of a mini-batch, from which one update is computed
            learning_rate=1e-3,  # learning rate of the optimizer
            # Treat every end of an episode as if it went on (bootstrap always).
            ignore_done=False,
            # Largest norm of the gradient; None: no limit.
            grad_clip_norm=None,
            # A loss or gradient that is not finite is never applied: "skip" goes on without it, "raise" ends the run.
            nonfinite="skip",
            # Updates in a row that are not finite, with nonfinite="skip", after which the run ends.
            max_nonfinite_steps=5,
            optimizer=OPTIMIZER_CONFIG,
        ),
        collect=dict(
            # Rows that are collected before the next updates; n_episode replaces it.
            n_sample=None,
            # Episodes that are collected before the next updates; replaces n_sample.
            n_episode=None,
            unroll_len=1,  # env steps of a row, where rows are sequences
        ),
        eval=dict(),
        other=dict(),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = POLICY_BOUNDS
    # Key -> the values that it may have, and key -> why it has no effect here; those of base classes are included.
    config_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"learn.nonfinite": ("skip", "raise")}
    config_unused: ClassVar[Mapping[str, str]] = {}
    # Key -> (the one value that it may have here, why); those of base classes are included.
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {}
    # Key -> (a value, the keys that have no effect where it has that one); those of base classes are included.
    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {}
    config_free: tuple[str, ...] = ("model",)
    # Types of keys whose default is None and that have no bounds; those of base classes are included.
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {
        "action_space": (str,),
        "action_low": (int, float, list),
        "action_high": (int, float, list),
    }

    # Setting one of a group turns the defaults of the others off.
    config_alternatives: tuple[tuple[str, ...], ...] = (("collect.n_sample", "collect.n_episode"),)

    # What the policy learns from: items of a replay buffer's samples.
    sample_unit: SampleUnit = "row"
    # Whether rows are of several steps: collect.unroll_len may then say of how many.
    rows_are_sequences = False

    @classmethod
    def env_steps_per_row(cls, cfg: Config) -> int:
        """Return the env steps that a training row stands for: more than 1 where rows are sequences."""
        return int(cfg["collect"].get("unroll_len") or 1)

    # What the policy computes of whole batches, so that several learners cannot share them; "": nothing.
    why_alone: ClassVar[str] = ""

    # Mode of `ding -m` that trains the policy, where its rows are of no collector; "": any mode of its kind.
    run_mode: ClassVar[str] = ""

    # Whether collectors act with an expert, which a pipeline gives them by `use_expert`.
    needs_expert = False

    # Names of gymnasium spaces: whose actions the algorithm can choose. None: any.
    action_spaces: tuple[str, ...] | None = ("Discrete",)

    @classmethod
    def default_config(cls) -> EasyDict:
        """Return the defaults, those of the base classes included."""
        return inherited_config(cls)

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        collect = cfg["collect"]
        if collect.get("n_sample") is not None and collect.get("n_episode") is not None:
            yield "collect", "n_sample and n_episode are both set; give one"
        if cfg["priority_IS_weight"] and not cfg["priority"]:
            yield "priority_IS_weight", "needs priority=True: without priorities all weights are 1"
        yield from declared_faults(cls, cfg)
        for key, message in check_optimizer(cfg["learn"]["optimizer"]):
            yield f"learn.optimizer.{key}", message
        if cfg["on_policy"] != cls.default_config().on_policy:
            yield "on_policy", f"is {cfg['on_policy']}, but that is the policy's own nature: choose another policy"
        if not (cls.rows_are_sequences or callable(getattr(cls, "_forward_collect", None))):  # which has its own rows
            yield from cls._no_effect(cfg, ("collect.unroll_len",), "rows are single transitions here")
        if cls.action_spaces is not None and not {"Box", "HybridSpace"} & set(cls.action_spaces):
            yield from cls._no_effect(cfg, ("action_low", "action_high"), "this policy's actions are discrete")

    @classmethod
    def check_model(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for what the model that a policy section names does not take of `cfg.model`."""
        return model_faults(cls, cfg)

    @classmethod
    def _no_effect(cls, cfg: Config, paths: Iterable[str], why: str) -> Iterator[tuple[str, str]]:
        """Yield (path, message) for those keys, without effect in this config, that it changes from the defaults."""
        return without_effect(cls, cfg, paths, why)

    def __init__(
        self, cfg: Config, model: torch.nn.Module | None = None, enable_field: Sequence[str] | None = None
    ) -> None:
        check_overrides(self)
        self._cfg = EasyDict(cfg)
        self._device = device_of(self._cfg.get("cuda", False))
        self._on_policy = bool(self._cfg.get("on_policy", False))
        self._gamma = float(self._cfg.get("discount_factor", 0.97))
        self._nstep = int(self._cfg.get("nstep", 1))
        collect = self._cfg.get("collect", {})
        self._n_sample, self._n_episode = collect.get("n_sample"), collect.get("n_episode")
        self._unroll_len = int(collect.get("unroll_len") or 1)
        self._enabled = tuple(enable_field or FIELDS)
        self._share = Share()
        # Any: algorithms call methods of their own models (`q`, say), which nn.Module does not know.
        self._model: Any = self._build_model() if model is None else model
        if self._own("_forward_learn") is None:
            shape = self._model_obs_shape()
            check_model(self._model, policy=type(self), obs_shape=shape, sizes=self._model_sizes)
        self._model.to(self._device)
        for field in FIELDS:
            if field in self._enabled:
                getattr(self, f"_init_{field}")()

    # ---- what an algorithm overrides

    # What it calls of its model.
    model_methods: tuple[ModelMethod, ...] = ()

    # Any: what a config may hold.
    def _model_obs_shape(self) -> Any:
        """Return the shape of what the model's methods are given as observations; None: it is not known."""
        return self._cfg.get("model", {}).get("obs_shape")

    def _model_sizes(self) -> dict[str, int]:
        """Return how long axes of `model_methods` are, by letter; A is the number of actions where it is one."""
        shape = self._cfg.get("model", {}).get("action_shape")
        return {"A": shape, "2A": 2 * shape} if isinstance(shape, int) else {}

    model_name = ""  # registry name of the default model

    def default_model(self) -> tuple[str, list[str]]:
        """Return the registry name of the model and the modules to import for it."""
        if not self.model_name:
            raise lacks(self, "default_model()", "which names the model that it builds where none is given")
        return self.model_name, []

    def _init_learn(self) -> None:
        """Set up optimizer and target networks."""

    def _init_collect(self) -> None:
        """Set up `self._collect_actor`."""
        if (actor := self._make_actor(explores=True)) is not None:
            self._collect_actor = actor

    def _init_eval(self) -> None:
        """Set up `self._eval_actor`."""
        if (actor := self._make_actor(explores=False)) is not None:
            self._eval_actor = actor

    def _make_actor(self, *, explores: bool) -> Actor | None:
        """Return what acts to collect, or to be evaluated; None: `_init_collect` and `_init_eval` set it up."""
        return None

    def _init_command(self) -> None:
        """Set up schedules that depend on the progress of the run."""

    _collect_actor: Actor
    _eval_actor: Actor

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient for one minibatch; return (what to log, priorities [B] or None).

        What it computes follows from the minibatch and `grad_state` alone, and it leaves that as it is: only `apply`
        changes it, schedules and targets included. What else an update moves (random numbers drawn, rows counted) is in
        `_moving`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not learn: it has no grad().")

    def apply(self) -> None:
        """Take one optimizer step on the gradient, and whatever follows it."""
        raise NotImplementedError(f"{type(self).__name__} does not learn: it has no apply().")

    def minibatches(self, batch: Any, rng: np.random.Generator) -> Iterator[Any]:  # Any: rows, windows or episodes
        """Yield the minibatches of one `train` call: the batch itself, once; of whole episodes, all their rows."""
        yield batch.batch if isinstance(batch, EpisodeBatch) and self.sample_unit == "row" else batch

    def with_returns(self, batch: TransitionBatch) -> TransitionBatch:
        """Return rows that a reward model gave other rewards, with the columns that follow from these."""
        return batch

    def why_no_reward_model(self) -> str | None:
        """Return why rows cannot be given other rewards, None if they can: each reward is one step's."""
        return (
            f"policy.nstep is {self._nstep}, and rewards are given step by step: set it to 1" * (self._nstep > 1)
            or None
        )

    # Whether it has `log_prob`.
    has_log_prob: ClassVar[bool] = False

    def log_prob(self, obs: Any, action: Tensor, mask: Tensor | None) -> Tensor:
        """Return the log probabilities [N] of actions as the env takes them, as the policy is now.

        `obs` are observations without their masks [N, A]. Of actions within bounds it is a density in units of
        (high - low) / 2.
        """
        raise NotImplementedError(f"{type(self).__name__} gives actions no probabilities.")

    def use_expert(self, actor: Actor) -> None:
        """Let collectors act with an expert."""
        raise NotImplementedError(f"{type(self).__name__} learns from no expert.")

    def expert_rows(self, rng: np.random.Generator) -> ExpertRows | None:
        """Return the expert's rows that join each batch, None for a policy that learns without an expert."""
        return None

    def _weight(self, batch: TransitionBatch) -> Any:
        """Return the importance weights [B] of rows, None where there are none or the config leaves them out."""
        return batch.columns.get("weight") if self._cfg.priority_IS_weight else None

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (n-step rows, rows to keep per lane [E]) of a rollout.

        A row holds the discounted sum of its window's rewards, the window's last `next_obs`, `terminated` and
        `truncated`, and `discount`, what multiplies the value of that `next_obs`. Windows that are not complete wait.
        """
        return self.row_maker().segment(rollout)

    def data_rows(self, rollout: Rollout) -> Rows:
        """Return the rows of a data set, a log of whole episodes; they may be gathered only when they are drawn."""
        return self.segment(rollout)[0]

    def num_ready(self, length: Array, ended: Array) -> int:
        """Return how many rows `segment` makes of stretches of these lengths [S], some `ended` [S]."""
        return self.row_maker().num_ready(length, ended)

    def row_maker(self) -> RowMaker:
        """Return what makes the rows of `segment`, as a plain object that is sent to actors without the networks."""
        return NStepRows(self._nstep, self._gamma)

    monitored: tuple[str, ...] = ("total_loss", "cur_lr")  # what the learner logs of `grad`'s results

    def _monitor_vars_learn(self) -> list[str]:
        """Name what the learner logs of `grad`'s results."""
        return list(self.monitored)

    def _moving(self) -> dict[str, Moving]:
        """Return what `grad` reads and an update moves beside the networks, by the name it is saved and sent under."""
        return {}

    def _saved(self) -> dict[str, Any]:
        """Return what else is saved and has `state_dict` and `load_state_dict`, optimizers say, by name."""
        return {}

    def _state_dict_learn(self) -> State:
        moving = {name: each.state for name, each in self._moving().items()}
        saved = {name: each.state_dict() for name, each in self._saved().items()}
        return {"model": self._model.state_dict(), **moving, **saved}

    def _load_state_dict_learn(self, state: State) -> None:
        self._load_model(state["model"])
        # Weights alone, a pre-trained model say, come without the rest, and begin with fresh optimizers.
        for name, moving in self._moving().items():
            if name in state:
                moving.load(state[name])
        for name, each in self._saved().items():
            if name in state:
                each.load_state_dict(state[name])

    def _get_setting_learn(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def _get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def _get_setting_eval(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    # ---- the four views

    @property
    def learn_mode(self) -> LearnMode:
        """Return what a learner uses: a `LearnMode`, or DI-engine's fields for a policy in DI-engine's style."""
        check_learns(self)
        fields: dict[str, Any] = dict(  # of each field its own
            reset=self._reset_learn,
            info=self._information,
            monitor_vars=self._monitor_vars_learn,
            get_attribute=self.get_attribute,
            set_attribute=self.set_attribute,
            state_dict=saver(self),
            load_state_dict=partial(load, self),
        )
        if (own := self._own("_forward_learn")) is not None:
            return cast(LearnMode, di_engine_view.DiEngineLearnMode(forward=own, **fields))  # the parts adapt it
        return LearnMode(
            # Partial and not lambda: a deep copy of the mode must run the copy.
            forward=partial(di_engine_view.forward_learn, self),
            **fields,
            grad=checked_grad(self),
            **{name: getattr(self, name) for name in LearnMode._fields if name in OUR_FIELDS and name != "grad"},
        )

    @property
    def collect_mode(self) -> CollectMode:
        """Return what a collector uses: a `CollectMode`, or DI-engine's fields for a policy in DI-engine's style."""
        check_acts(self, "collect")
        if (own := self._own("_forward_collect")) is not None:
            own_mode = di_engine_view.DiEngineCollectMode(
                forward=own,
                process_transition=self._own("_process_transition"),
                get_train_sample=getattr(self, "_get_train_sample", lambda rows: rows),
                **self._act_fields(getattr(self, "_reset_collect", di_engine_view.reset_nothing)),
            )
            return cast(CollectMode, own_mode)  # the parts adapt what it lacks
        actor = self._collect_actor
        return CollectMode(
            forward=partial(di_engine_view.forward_rows, actor),
            process_transition=di_engine_view.process_transition,
            get_train_sample=partial(di_engine_view.get_train_sample, self),
            **self._act_fields(partial(di_engine_view.reset_actor, actor)),
            actor=actor,
            segment=self.segment,
            num_ready=self.num_ready,
        )

    @property
    def eval_mode(self) -> EvalMode:
        """Return what an evaluator uses: an `EvalMode`, or DI-engine's fields for a policy in DI-engine's style."""
        check_acts(self, "eval")
        if (own := self._own("_forward_eval")) is not None:
            own_fields = self._act_fields(getattr(self, "_reset_eval", di_engine_view.reset_nothing))
            return cast(EvalMode, di_engine_view.DiEngineEvalMode(forward=own, **own_fields))
        actor = self._eval_actor
        fields = self._act_fields(partial(di_engine_view.reset_actor, actor))
        return EvalMode(forward=partial(di_engine_view.forward_rows, actor), **fields, actor=actor)

    # Any: what a method of DI-engine's style takes and returns.
    def _own(self, name: str) -> Callable[..., Any] | None:
        """Return a method that a policy in DI-engine's style has, or None."""
        found = getattr(self, name, None)
        return found if callable(found) else None

    def _act_fields(self, reset: Callable[..., None]) -> dict[str, Any]:
        """Return the fields that collect and eval modes have in common, `reset` among them."""
        attributes: dict[str, Any] = dict(get_attribute=self.get_attribute, set_attribute=self.set_attribute)
        states = dict(state_dict=self._state_dict_act, load_state_dict=self._load_state_dict_act)
        return dict(reset=reset, **attributes, **states)

    @property
    def command_mode(self) -> CommandMode:
        """Return what a commander uses."""
        return CommandMode(self._get_setting_learn, self._get_setting_collect, self._get_setting_eval)

    @property
    def device(self) -> torch.device:
        """Return the device of the networks."""
        return self._device

    @property
    def cfg(self) -> EasyDict:
        """Return the policy section of the config."""
        return self._cfg

    def get_attribute(self, name: str) -> Any:
        """Return `_get_<name>()` or `_<name>`; raises NotImplementedError if the policy has neither."""
        if hasattr(self, f"_get_{name}"):
            return getattr(self, f"_get_{name}")()
        if hasattr(self, f"_{name}"):
            return getattr(self, f"_{name}")
        raise NotImplementedError(f"{type(self).__name__} has no attribute '{name}'")

    def _get_batch_size(self) -> int:
        return int(self._cfg.learn.batch_size)

    def set_attribute(self, name: str, value: Any) -> None:
        """Call `_set_<name>(value)` or set `_<name>`; raises NotImplementedError if the policy has neither."""
        if hasattr(self, f"_set_{name}"):
            getattr(self, f"_set_{name}")(value)
        elif hasattr(self, f"_{name}"):
            setattr(self, f"_{name}", value)
        else:
            raise NotImplementedError(f"{type(self).__name__} has no attribute '{name}'")

    def _set_learning_rate(self, value: float) -> None:
        """Let all optimizers step at this rate from now on."""
        for optimizer in self._optimizers():
            optimizer.learning_rate = float(value)

    def _get_nonfinite_steps(self) -> int:
        """Return how many updates were not finite and so not applied; raises TrainingError if they must end the run."""
        return sum(optimizer.check() for optimizer in self._optimizers())

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        """Return the optimizers whose steps are checked."""
        return ()

    # ---- grad here, apply there

    def grad_vectors(self) -> list[torch.Tensor]:
        """Return the live vectors that `grad` fills: what several learners average.

        There is one for each optimizer, gradient and loss [P + 1], and behind them what an algorithm reads of an
        update beside those.
        """
        return [optimizer.params.grad_and_loss for optimizer in self._optimizers()]

    # Whether each of several learners is given whole batches, of which its `minibatches` are shares; else its own rows.
    takes_whole_batches = False

    def set_share(self, share: Share) -> None:
        """Be one of several learners that act as one. Raises ConfigError where `why_alone` is set."""
        if share.num_learners > 1 and self.why_alone:
            raise ConfigError(
                f"policy '{self._cfg.type}' {self.why_alone}, which several learners do not see: use --learners 1"
            )
        self._share = share

    def grad_weight(self) -> float:
        """Return what this learner's gradient counts in that of all learners."""
        return 1.0 / self._share.num_learners

    def grad_state(self) -> State:
        """Return all that `grad` depends on beside the minibatch: nested mappings of tensors, which are copies."""
        rates = {str(i): optimizer.learning_rate for i, optimizer in enumerate(self._optimizers())}
        modules = {name: module.state_dict() for name, module in self._grad_modules().items()}
        moving = {name: each.state for name, each in self._moving().items()}
        return cast(State, copied({**modules, "numbers": {**moving, "learning_rates": rates}}))

    def load_grad_state(self, state: State) -> None:
        """Load what another policy's `grad_state` returned: `grad` computes what it would compute there.

        Optimizers stay as they are: the process that applies has those. Raises CheckpointError for parts that do not
        fit, or that are missing.
        """
        modules = self._grad_modules()
        if state.keys() != {*modules, "numbers"}:
            raise CheckpointError(
                f"the gradient's state has parts {sorted(state)}, expected {sorted({*modules, 'numbers'})}."
            )
        for name, module in modules.items():
            check_model_state(module.state_dict(), state[name], path=f"the gradient's state '{name}'")
            module.load_state_dict(state[name])
        for name, each in self._moving().items():
            each.load(state["numbers"][name])
        for i, optimizer in enumerate(self._optimizers()):
            optimizer.learning_rate = float(state["numbers"]["learning_rates"][str(i)])

    def gradient(self) -> State:
        """Return what `apply` needs of the last `grad` done in another process: live vectors, and what it moves."""
        return {
            "vectors": {str(i): vector for i, vector in enumerate(self.grad_vectors())},
            "moves": {name: each.next_state for name, each in self._moving().items()},
        }

    def load_gradient(self, gradient: State) -> None:
        """Take over what another policy's `gradient` returned, for `apply`; CheckpointError if it does not fit."""
        own, given = self.grad_vectors(), gradient["vectors"]
        shapes = [tuple(vector.shape) for vector in own], [tuple(given[name].shape) for name in sorted(given, key=int)]
        if shapes[0] != shapes[1]:
            raise CheckpointError(f"a gradient has vectors of shapes {shapes[1]}, expected {shapes[0]}.")
        for i, vector in enumerate(own):
            vector.copy_(given[str(i)])
        for name, each in self._moving().items():
            each.load_next(gradient["moves"][name])

    def _grad_modules(self) -> dict[str, torch.nn.Module]:
        """Return the networks that `grad` reads, targets among them, by the name they are sent under."""
        return {"model": self._model}

    def _reset_learn(self, data_id: Any = None) -> None:
        """Forget nothing: a feed-forward learner has no state per lane."""

    def _information(self) -> str:
        num_params = sum(parameter.numel() for parameter in self._model.parameters())
        return f"{type(self).__name__} on {self._device}, {num_params} parameters"

    def _state_dict_act(self) -> State:
        """Return all that acting and `segment` need: dicts of tensors by name, one level deep, which is published."""
        return {"model": self._model.state_dict()}

    def _load_state_dict_act(self, state: State) -> None:
        self._load_model(state["model"])

    def _load_model(self, state: Mapping[str, Any]) -> None:
        check_model_state(self._model.state_dict(), state, path="the checkpoint")
        # In place: parameters stay views of the flat vector.
        self._model.load_state_dict(state)

    def _obs(self, batch: TransitionBatch, prefix: str = "obs") -> Any:
        """Return a batch's observations as the model takes them: a tensor, or a dict of tensors."""
        return columns_to_obs(prefix, batch.columns)

    def _build_model(self) -> torch.nn.Module:
        return build_model(self._cfg, self.default_model)


def lacks(policy: PolicyLike, what: str, why: str) -> ConfigError:
    """Return the error of a policy that lacks something."""
    name = getattr(policy.cfg, "type", "") or type(policy).__name__
    return ConfigError(
        f"policy '{name}' ({type(policy).__name__}) has no {what}, {why}; {PAGE} shows a policy of one's own."
    )


def check_learns(policy: PolicyLike) -> None:
    """Raise ConfigError unless a policy has `grad` and `apply`, or DI-engine's `_forward_learn`."""
    if callable(getattr(policy, "_forward_learn", None)):
        return
    why = {"grad": "which fills the gradient of a minibatch", "apply": "which takes one step of the optimizer"}
    if missing := [name for name in why if getattr(type(policy), name) is getattr(Policy, name)]:
        lacking = " and no ".join(f"{name}()" for name in missing)
        reasons = " and ".join(why[name] for name in missing)
        raise lacks(policy, lacking, f"{reasons} (in DI-engine's style: _forward_learn)")


def checked_grad(policy: PolicyLike) -> Callable[[Any], Any]:
    """Return a policy's `grad`; one of the user's own is held to what it must return."""
    return policy.grad if type(policy).__module__.startswith("ding_like.") else partial(_checked_grad, policy)


def _checked_grad(policy: PolicyLike, minibatch: Any, **kwargs: Any) -> Any:
    found = policy.grad(minibatch, **kwargs)
    name = method_name(policy.grad)
    if not isinstance(found, tuple) or len(found) != 2:
        seen = "None" if found is None else f"a {type(found).__name__}"
        raise SchemaError(
            f"{name} returned {seen}; it must return two values, what to log and the priorities or None, as in "
            "return {'total_loss': loss.detach()}, None."
        )
    check_logged(found[0], name, policy._monitor_vars_learn())
    return found


def check_overrides(policy: PolicyLike) -> None:
    """Raise ConfigError for a method of the user's own that takes fewer arguments than the one that it overrides."""
    classes = type(policy).__mro__
    for cls in (each for each in classes if not each.__module__.startswith("ding_like.") and issubclass(each, Policy)):
        for name, own in vars(cls).items():
            over = next((vars(each)[name] for each in classes[classes.index(cls) + 1 :] if name in vars(each)), None)
            if name.startswith("__") or not (inspect.isfunction(own) and inspect.isfunction(over)):
                continue
            takes = inspect.signature(over).parameters.values()
            names = [it.name for it in takes if it.kind == it.POSITIONAL_OR_KEYWORD and it.default is it.empty]
            try:
                inspect.signature(own).bind_partial(*names)
            except TypeError:
                at = f"{own.__code__.co_filename}:{own.__code__.co_firstlineno}"
                raise ConfigError(
                    f"{cls.__name__}.{name} ({at}) takes fewer arguments than the method that it overrides, which is "
                    f"called as {name}({', '.join(names[1:])})."
                ) from None


def check_acts(policy: PolicyLike, mode: str) -> None:
    """Raise ConfigError unless a policy has an actor of a mode, or DI-engine's methods."""
    if callable(getattr(policy, f"_forward_{mode}", None)):
        if mode == "collect" and not callable(getattr(policy, "_process_transition", None)):
            raise lacks(policy, "_process_transition()", "which makes a row, and goes with its _forward_collect()")
        return
    if not hasattr(policy, f"_{mode}_actor"):
        enabled = policy.get_attribute("enabled")
        if mode not in enabled:
            raise ConfigError(f"policy '{policy.cfg.type}' was built for {', '.join(enabled)} alone, not for {mode}.")
        raise lacks(
            policy,
            f"actor to {mode} with",
            f"_init_{mode}() must set self._{mode}_actor (in DI-engine's style: _forward_{mode})",
        )


_MODES = ("learn_mode", "collect_mode", "eval_mode")


def create_policy(cfg: Config, **kwargs: Any) -> Policy:
    """Build the policy that `cfg.type` names.

    Raises RegistryError for an unknown name, and ConfigError for a class that is no policy and where code of the
    user's own raises, with its line.
    """
    cls = get_policy_cls(cfg)
    missing = [name for name in _MODES if not hasattr(cls, name)]
    if missing:
        raise ConfigError(
            f"policy '{cfg['type']}' is {cls.__name__}, which has no {', '.join(missing)}: derive it from "
            f"ding_like.policy.Policy, or from a policy that is like it; {PAGE} shows one."
        )
    try:
        return cls(cfg=cfg, **kwargs)
    except DingError:
        raise  # it says what is wrong
    except Exception as error:  # a user's policy may raise anything; errors of our code keep their traceback
        if not raised_at(error):
            raise
        raise ConfigError(
            f"policy '{cfg['type']}' ({cls.__name__}) cannot be built: {describe_error(error)}."
        ) from error


def get_policy_cls(cfg: Config) -> type[Policy]:
    """Return the class that `cfg.type` names; raises RegistryError for an unknown name."""
    return cast(type[Policy], POLICY_REGISTRY.get(cfg["type"], cfg.get("import_names", ())))
