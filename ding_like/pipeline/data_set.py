"""Learning from a data set: its rows in shuffled epochs, and the runners that train on them.

Wrapper `obs_norm` normalises by the mean and the variance of the data's observations, which go with the checkpoints.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.data_files import read_data
from ding_like.data.demonstrations import NOT_SET, Demonstrations
from ding_like.data.expert_rows import IS_EXPERT, ExpertRows
from ding_like.data.mapped import in_memory, pieces
from ding_like.envs import EnvFactory, get_vec_env_setting
from ding_like.envs.factory import env_class
from ding_like.envs.wrappers import stateful_layers
from ding_like.envs.wrappers.common import ObsNorm
from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.components import Components, build_serial
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.statistics import MergedStatistics
from ding_like.pipeline.training_loop import Runner, SerialRunner
from ding_like.policy import Policy, get_policy_cls
from ding_like.policy.rows import Rows
from ding_like.policy.sharing import ALONE, Share
from ding_like.report.summary import env_name
from ding_like.types import EnvManager, Reducer, Setting, State
from ding_like.utils.measure import Moments, merged
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state

logger = logging.getLogger(__name__)

# A draw of 256 rows takes 30 us from memory, and 1.6 ms from a file (benchmarks.buffer, data_set_256).
_LOADED_BYTES = 512 << 20


def batches_per_epoch(num_rows: int, batch_size: int) -> int:
    """Return how many minibatches of about `batch_size` rows are one pass over all rows."""
    return max(1, round(num_rows / batch_size))


class DataSet:
    """Rows that are drawn in shuffled epochs: each row once, in minibatches that differ by at most one row.

    There are `len(rows) / batch_size` minibatches, rounded, so that no row is left out. The state is the generator
    before the epoch and the place in it, so that a resumed run draws the same rows.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        rng: np.random.Generator,
        *,
        source: str,
        share: Share = ALONE,
        prepare: Callable[[TransitionBatch], TransitionBatch] = lambda rows: rows,
        max_loaded_bytes: int = _LOADED_BYTES,
    ) -> None:
        """Take rows, the learner's `share` of each minibatch, and what prepares a minibatch for training.

        Columns that stay in a file are loaded where all together have at most `max_loaded_bytes`.
        """
        small = sum(column.nbytes for column in rows.columns.values()) <= max_loaded_bytes
        if small and isinstance(rows, TransitionBatch):
            rows = rows.with_columns(**{name: in_memory(column) for name, column in rows.columns.items()})
        self.rows, self._rng, self._source, self._share, self._prepare = rows, rng, source, share, prepare
        self._ends = np.linspace(0, len(rows), batches_per_epoch(len(rows), batch_size) + 1).round().astype(np.int64)
        self._checksum = 0
        for name in sorted(rows.columns):
            for _, (part,) in pieces(rows.columns[name]):
                self._checksum = zlib.crc32(np.ascontiguousarray(part).data, self._checksum)
        self.epoch = 0  # of the minibatch drawn next
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._before = rng_state(self._rng)
        self._order, self._next = np.arange(len(self.rows), dtype=np.uint32), 0  # of 16 million rows 64 MB
        self._rng.shuffle(self._order)

    def draw(self) -> TransitionBatch:
        """Return the next minibatch, in fresh memory."""
        start, stop = self._ends[self._next : self._next + 2]
        num_rows = (stop - start) // self._share.num_learners  # gradients of as many rows each are averaged
        first = start + self._share.rank * num_rows
        minibatch = self._prepare(self.rows.take(self._order[first : first + num_rows]))
        self._next += 1
        if self._next == len(self._ends) - 1:
            self.epoch += 1
            self._begin_epoch()
        return minibatch

    def state_dict(self) -> State:
        """Return the place in the epoch, and what shuffled it."""
        return {"rng": self._before, "next": self._next, "epoch": self.epoch, "checksum": self._checksum}

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned. Raises CheckpointError for rows of another file."""
        if state["checksum"] != self._checksum:
            raise CheckpointError(
                f"{self._source} is not the file that this run began with, so its rows would come in another order: "
                "put that file back, or begin a new run with --load-path."
            )
        set_rng_state(self._rng, state["rng"])
        self._begin_epoch()
        self._next, self.epoch = state["next"], state["epoch"]


class DataSetRunner(Runner):
    """Runner that trains on one minibatch of a data set each step, and collects nothing."""

    setting: Setting = {}

    def __init__(self, parts: Components, data_set: DataSet) -> None:
        self._learner, self._data_set = parts.learner, data_set

    def start(self) -> None:
        """Begin a new run: there is nothing to collect first."""

    def step(self) -> None:
        """Draw a minibatch and train on it."""
        self._learner.train(self._data_set.draw())

    def state_dict(self) -> State:
        """Return where in the data set the run is."""
        return self._data_set.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Resume from what `state_dict` returned."""
        self._data_set.load_state_dict(state)


class OnlineAfterData(Runner):
    """Runner that trains on a data set for a number of updates, then collects and trains in this process.

    The first `policy.random_collect_size` rows that are collected come from the policy itself, and are not random.
    """

    def __init__(self, offline: DataSetRunner, online: SerialRunner, updates: int) -> None:
        self._offline, self._online, self._updates = offline, online, updates

    @property
    def setting(self) -> Setting:
        """Setting of the collector, as the commander set it last."""
        return self._online.setting

    def start(self) -> None:
        """Begin a new run with the data set."""
        self._offline.start()

    def step(self) -> None:
        """Train on a minibatch of the data set, or from the last of its updates on collect and train."""
        parts = self._online.parts
        if parts.learner.train_iter < self._updates:
            self._offline.step()
            return
        if parts.collector.envstep == 0:
            self._fill_buffer()
        self._online.step()

    def _fill_buffer(self) -> None:
        cfg, parts = self._online.cfg.policy, self._online.parts
        logger.info("updates on the data set are over, at iteration %s: collecting", f"{parts.learner.train_iter:,}")
        if size := int(cfg.random_collect_size):
            kwargs = parts.commander.step()
            rows = parts.own_collector.collect_rows(size, train_iter=parts.learner.train_iter, policy_kwargs=kwargs)
            parts.replay_buffer.push(rows, cur_collector_envstep=parts.collector.envstep)

    def state_dict(self) -> State:
        """Return where in the data set the run is, and what is due of an iteration that was broken off."""
        return {"offline": self._offline.state_dict(), "online": self._online.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Resume from what `state_dict` returned."""
        self._offline.load_state_dict(state["offline"])
        self._online.load_state_dict(state["online"])


def check_learns_from_rows(cfg: FrozenConfig) -> None:
    """Raise ConfigError for a policy that a file of steps alone cannot train."""
    cls, name = get_policy_cls(cfg.policy), cfg.policy.type
    why = ""
    if cfg.policy.on_policy or getattr(cls, "rows_need_networks", False):
        why = "learns from what it has just collected itself"
    elif cls.sample_unit != "row" or cls.rows_are_sequences or not issubclass(cls, Policy):
        why = "learns from sequences with what its own actor remembers"
    elif cfg.policy.priority:
        why = "is to draw rows by priority (policy.priority=True), and they are drawn in epochs"
    elif "data_path" not in cfg.policy.collect:
        why = "learns from what it collects"
    if why:
        raise ConfigError(
            f"policy '{name}' {why}: a data set cannot train it. For discrete actions choose discrete_cql, "
            "discrete_bcq, dt or bc, for continuous ones td3_bc, rebrac, iql, cql, edac, bcq, dt or bc."
        )


def read_demonstrations(cfg: FrozenConfig) -> Demonstrations:
    """Return the demonstrations that a config names. Raises ConfigError where it names none, or no file."""
    path = cfg.policy.collect.get("data_path")
    if not path:
        named = getattr(env_class(cfg.env), "default_data", None)
        path = named(cfg.env) if named is not None else ""
        if not path:
            raise ConfigError(f"policy.collect.data_path {NOT_SET}.")
        if not Path(path).exists():
            raise ConfigError(
                f"there is no {path}, the data set that env_id '{cfg.env.env_id}' names: `ding collect EXP --levels "
                f"{Path(path).stem} --steps 100000 --out {Path(path).parent}` makes it of a run, or give "
                "policy.collect.data_path."
            )
        logger.info("policy.collect.data_path is not set: env_id '%s' names %s", cfg.env.env_id, path)
    found = read_data(path)
    trained_on, env_id = found.info.get("env_id"), cfg.env.get("env_id")
    same = getattr(env_class(cfg.env), "ids", {}).get(env_id, env_id)  # what is made of an id of DI-engine's configs
    if trained_on and env_id and trained_on not in (env_id, same):
        logger.warning("%s was collected in %s, and the run evaluates in %s", path, trained_on, env_name(cfg.env))
    return found


def build_from_data(
    cfg: FrozenConfig,
    demonstrations: Demonstrations,
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    share: Share = ALONE,
    make_reducer: Callable[[Policy], Reducer] | None = None,
    goes_online: bool = False,
) -> tuple[Components, DataSet]:
    """Return the components of a run that learns from data, and its data set: the rows that the policy makes.

    Without `goes_online` nothing is collected. One of several learners has a `share`, and a reducer of gradients.
    """
    parts = build_serial(
        cfg, seed=seed, env_setting=env_setting, model=model, with_buffer=goes_online, collects=goes_online,
        share=share, make_reducer=make_reducer,
    )  # fmt: skip
    try:
        parts.collects = goes_online
        if parts.evaluator_env is not None and parts.evaluator is not None:  # the first learner's
            check_fits(demonstrations, parts.evaluator_env)
            if reference := demonstrations.info.get("reference"):
                parts.evaluator.reference = float(reference["random"]), float(reference["expert"])
        prepare = _normaliser(cfg, demonstrations, parts, env_setting)
        rows, batch_size = parts.policy.data_rows(demonstrations.rollout()), int(cfg.policy.learn.batch_size)
        make = partial(DataSet, batch_size=batch_size, rng=make_rng(seed, "data_set"), source=demonstrations.source)
        if not goes_online:
            return parts, make(rows, share=share, prepare=prepare)
        assert isinstance(rows, TransitionBatch), "a policy that goes online learns from single steps"
        rows = prepare(rows)  # once, for both that draw from them
        data_set = make(rows.with_columns(**{IS_EXPERT: np.ones(len(rows), bool)}))  # none are to be joined
        if data_share := float(cfg.policy.learn.get("data_share", 0.0)):
            assert isinstance(data_set.rows, TransitionBatch), "as it was given"
            expert_rows = ExpertRows(data_set.rows, data_share, make_rng(seed, "expert_rows"))
            parts.learner.use_expert_rows(expert_rows)
        return parts, data_set
    except BaseException:
        parts.close()
        raise


def _normaliser(
    cfg: FrozenConfig, demonstrations: Demonstrations, parts: Components, env_setting: EnvSetting | None
) -> Callable[[TransitionBatch], TransitionBatch]:
    """Return what normalises rows as the envs do, which go by the data's mean and variance from now on.

    Raises ConfigError for a wrapper that learns statistics of rewards.
    """
    statistics = parts.statistics if isinstance(parts.statistics, MergedStatistics) else None
    if not (any(parts.own_env.wrapper_states()) if statistics is None else statistics.resume_state()):
        return lambda rows: rows
    env_fn, _, env_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
    with closing(EnvFactory(env_cfgs[0], env_fn)()) as env:
        learning = list(stateful_layers(env))
    norm = learning[0]
    if len(learning) > 1 or not isinstance(norm, ObsNorm):
        raise ConfigError(
            f"env.wrappers has {', '.join(type(each).__name__ for each in learning)}, which learn from what is "
            "collected: a data set has the statistics of obs_norm alone. Leave the others out."
        )
    moments = merged([Moments.of(part) for _, (part,) in pieces(demonstrations.columns["obs"])])
    norm.learn_moments(moments)
    if statistics is None:
        parts.own_env.adopt_wrapper_states([[{"type": type(norm).__name__, "state": norm.state_dict()}]])
    else:
        statistics.set_moments([moments])

    def prepare(rows: TransitionBatch) -> TransitionBatch:
        return rows.with_columns(**{name: norm.normalised(rows[name]) for name in ("obs", "next_obs")})

    return prepare


def check_fits(demonstrations: Demonstrations, env: EnvManager) -> None:
    """Raise SchemaError where demonstrations have other observations or actions than an env."""
    demonstrations.check_obs(_one_row(env.observation_space))
    space, choices = env.action_space, None
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        nvec = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", np.full(space.shape, 2))
        choices = np.ravel(nvec).tolist()
    demonstrations.check_actions(int(np.prod(space.shape or ())), choices)


def _one_row(space: Any) -> Any:  # Any: a gymnasium space; observations
    """Return a row of zeros [1, ...] of a space, of a dict a dict of them."""
    if isinstance(space, spaces.Dict):
        return {name: _one_row(inner) for name, inner in space.spaces.items()}
    return np.zeros((1, *(space.shape or ())), space.dtype)
