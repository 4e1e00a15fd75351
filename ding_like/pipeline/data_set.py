"""Learning from a file of demonstrations: its rows in shuffled epochs, and the runner that trains on them."""

from __future__ import annotations

import logging
import zlib
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.data_files import read_data
from ding_like.data.demonstrations import NOT_SET, Demonstrations
from ding_like.data.mapped import in_memory, pieces
from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.components import Components, build_serial
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.training_loop import Runner
from ding_like.policy import Policy, get_policy_cls
from ding_like.report.summary import env_name
from ding_like.types import EnvManager, Setting, State
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state

logger = logging.getLogger(__name__)

# A draw of 256 rows takes 30 us from memory, and 1.6 ms from a file (benchmarks.buffer, data_set_256).
_LOADED_BYTES = 128 << 20


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
        rows: TransitionBatch,
        batch_size: int,
        rng: np.random.Generator,
        *,
        source: str,
        max_loaded_bytes: int = _LOADED_BYTES,
    ) -> None:
        """Take the rows; columns that stay in a file are loaded where all together are at most `max_loaded_bytes`."""
        if sum(column.nbytes for column in rows.columns.values()) <= max_loaded_bytes:
            rows = TransitionBatch({name: in_memory(column) for name, column in rows.columns.items()})
        self.rows, self._rng, self._source = rows, rng, source
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
        minibatch = self.rows.take(self._order[start:stop])
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
    if why:
        raise ConfigError(f"policy '{name}' {why}: a file of demonstrations cannot train it. 'bc' learns from one.")


def read_demonstrations(cfg: FrozenConfig) -> Demonstrations:
    """Return the demonstrations that a config names. Raises ConfigError where it names none, or no file."""
    path = cfg.policy.collect.get("data_path")
    if not path:
        raise ConfigError(f"policy.collect.data_path {NOT_SET}.")
    found = read_data(path)
    trained_on = found.info.get("env_id")
    if trained_on and (env_id := cfg.env.get("env_id")) and trained_on != env_id:
        logger.warning("%s was collected in %s, and the run evaluates in %s", path, trained_on, env_name(cfg.env))
    return found


def build_from_data(
    cfg: FrozenConfig,
    demonstrations: Demonstrations,
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
) -> tuple[Components, DataSet]:
    """Return the components of a run that collects nothing, and its data set: the rows that the policy makes."""
    parts = build_serial(cfg, seed=seed, env_setting=env_setting, model=model, with_buffer=False, collects=False)
    try:
        parts.collects = False
        assert parts.evaluator_env is not None, "the first learner evaluates"
        check_fits(demonstrations, parts.evaluator_env)
        if parts.statistics is not None and parts.statistics.resume_state():
            raise ConfigError(
                "env.wrappers has wrappers that learn statistics of what is collected (obs_norm, reward_norm), and "
                "nothing is collected here: leave them out, and give demonstrations of the plain env."
            )
        rows, _ = parts.policy.segment(demonstrations.rollout())
        rng = make_rng(seed, "data_set")
        return parts, DataSet(rows, int(cfg.policy.learn.batch_size), rng, source=demonstrations.source)
    except BaseException:
        parts.close()
        raise


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
