"""Agent that a run trained: `ding_like.load` returns it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from ding_like.agent.checkpoints import counter, find_checkpoint, load_weights, make_policy, run_folder
from ding_like.agent.description import AgentDescription, read_description
from ding_like.agent.observations import ObservationReader, RawBatch, Rows, Space, by_flat_name
from ding_like.agent.wrappers import AgentWrappers, AnyEnv, EnvAction, WrapperSplit
from ding_like.comm.rest.messages import RefusedError
from ding_like.data.rows import adapt_collect_mode, adapt_eval_mode
from ding_like.envs.wrappers import adopt_wrapper_states, wrap, wrapper_states
from ding_like.errors import CheckpointError, SchemaError
from ding_like.policy.forward import ForwardActor
from ding_like.types import Actor, Array, Forward, Obs, SeesRewards, Setting
from ding_like.utils.checkpoint import load_state
from ding_like.utils.seeding import make_rng

logger = logging.getLogger(__name__)

_MAX_BATCH = 2**31


class FiniteForward:
    """Network whose observations, output and recurrent state must be finite, else FloatingPointError is raised."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self.initial_state = forward.initial_state

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of the network: an export needs its `run_tensors`."""
        return getattr(self._forward, name)

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        check_finite("the policy observes", obs if isinstance(obs, dict) else {"": obs})
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            output, after = self._forward(obs, state)
        check_finite("the policy's network computes", {"": output, **after})
        return output, after


def finite_actor(actor: Actor) -> Actor:
    """Return an actor of a policy's mode; its network, if it is a `ForwardActor`, becomes a `FiniteForward`."""
    if isinstance(actor, ForwardActor):
        actor.forward = FiniteForward(actor.forward)
    return actor


def check_finite(what: str, columns: Mapping[str, Array]) -> None:
    """Raise FloatingPointError for columns [R, ...] with a NaN or an infinity; `what` begins the message."""
    for column in columns.values():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            rows = np.flatnonzero(~np.isfinite(column).reshape(len(column), -1).all(axis=1))
            raise FloatingPointError(
                f"{what} {column[~np.isfinite(column)][0]} for the observation in row "
                f"{', '.join(map(str, rows[:5]))}, expected finite numbers: give observations as the env gives them"
            )


class LoadedVersion(NamedTuple):
    """Weights that act."""

    path: Path
    train_iter: int | None  # updates that the weights have had, None where the file does not record it
    env_step: int | None


class Agent:
    """Agent of a run: chooses actions for observations of the run's env, one or a batch of them.

    It keeps the recurrent state and the stacked frames of an episode. A row of a batch is an episode of its own, by its
    place. One agent is for one thread; load one for each.
    """

    def __init__(
        self,
        description: AgentDescription,
        path: Path,
        *,
        device: str | torch.device | None = None,
        model: torch.nn.Module | None = None,
        seed: int = 0,
        split: WrapperSplit | None = None,
        modes: Sequence[str] = ("collect", "eval", "command"),
    ) -> None:
        """Load the weights of a checkpoint; `seed` is of the random numbers of actions that are sampled.

        `split` are the wrappers that the client applies, by default only those that need the env itself. An agent with
        the mode "eval" alone samples no actions. Raises CheckpointError for a file that is missing, torn or of another
        model.
        """
        state = load_state(path)
        self.description = description
        self.policy = make_policy(description, modes=modes, device=device, model=model)
        mode = adapt_eval_mode(self.policy.eval_mode)
        self._statistics = load_weights(mode, state, path)
        self.actor = self._last_actor = finite_actor(mode.actor)  # it chooses actions without exploring
        self.version = LoadedVersion(path, counter(state, "last_iter"), counter(state, "last_step"))
        self._split = split or description.split(remembers=True, client_wraps=True)
        try:
            self.wrapping = AgentWrappers(self._split, self._statistics)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        self._reader = ObservationReader(self._split.observation_space, max_batch=_MAX_BATCH)
        self._rng = make_rng(seed, "agent")
        self.last_actions: EnvAction = None  # of the last call, by row
        self._num_begun = 0  # rows whose episode has begun, the first ones
        initial = getattr(getattr(self.actor, "forward", None), "initial_state", None)
        has_state = bool(self.actor.state_dict() or initial)
        self.keeps_state = has_state or self.wrapping.remembers  # whether it remembers anything of an episode

    @property
    def observation_space(self) -> Space:
        """Space of what `act` takes."""
        return self._split.observation_space

    @property
    def action_space(self) -> Space:
        """Space of what `act` returns."""
        return self._split.action_space

    @property
    def wrappers(self) -> list[str]:
        """Wrappers that the agent applies to observations and actions."""
        return self.wrapping.names

    @property
    def client_wrappers(self) -> tuple[str, ...]:
        """Wrappers of the run that need the env itself: `wrap` puts them around yours."""
        return (*self._split.client_wrappers, *self.description.inner_wrappers)

    def wrap(self, env: AnyEnv) -> AnyEnv:
        """Return an env inside those wrappers of the run that need the env itself; without any it is the env."""
        wrapped = wrap(env, [layer.spec for layer in self._split.client_layers])
        num_own = len(wrapper_states(self.wrapping.stack))
        if wrapper_states(wrapped) and any(self._statistics):
            adopt_wrapper_states(wrapped, [lane[num_own:] for lane in self._statistics])
        return wrapped

    def reset(self) -> None:
        """Begin a new episode in every row with the next observations."""
        self._num_begun = 0

    def act(
        self,
        obs: RawBatch,
        *,
        deterministic: bool = True,
        is_first: bool | Array | Sequence[bool] | None = None,
        reward: float | Array | Sequence[float] | None = None,
    ) -> EnvAction:
        """Return the action for one observation, or those of a batch [B, ...]; the space decides which it is.

        `is_first`, one bool or one for each row [B], marks where an episode begins; without it one goes on until
        `reset`. `deterministic=False` draws actions as the run's collector did behind its last step. `reward` is that
        of the last action, one number or one for each row [B]; policy 'dt' needs it. An action has the env's form: an
        int, an array [A...], or of hybrid actions what the env's `step` takes (of a batch a list).
        Raises SchemaError for what is no observation of `observation_space`, or makes the network overflow.
        """
        try:
            rows = self._reader.read(by_flat_name(obs))
        except RefusedError as error:
            raise SchemaError(f"{error}; the agent takes {self.observation_space}.") from error
        first = self._first(rows, is_first)
        seen = self.wrapping.to_policy(rows, first)
        actor, setting = (self.actor, {}) if deterministic else self._collect
        if actor is not self._last_actor:
            actor.load_state_dict(self._last_actor.state_dict())
            self._last_actor = actor
        if reward is not None and isinstance(actor, SeesRewards):
            actor.observe(np.arange(rows.num), _rewards(reward, rows.num))
        try:
            chosen = actor.act(seen, lanes=np.arange(rows.num), is_first=first, rng=self._rng, **setting)["action"]
            check_finite("the policy chooses", {"action": chosen})
        except FloatingPointError as error:
            raise SchemaError(f"{error}; the agent takes {self.observation_space}.") from error
        action = self.last_actions = self.wrapping.to_client(chosen)
        if rows.is_batch:
            return action
        return action[0].item() if isinstance(self.action_space, gymnasium.spaces.Discrete) else action[0]

    @cached_property
    def _collect(self) -> tuple[Actor, Setting]:
        """Actor of the collect mode, and its setting at the step of the checkpoint."""
        mode = adapt_collect_mode(self.policy.collect_mode)
        mode.load_state_dict(self.policy.eval_mode.state_dict())
        setting = self.policy.command_mode.get_setting_collect({"envstep": self.version.env_step or 0})
        return finite_actor(mode.actor), setting

    def _first(self, rows: Rows, is_first: bool | Array | Sequence[bool] | None) -> Array:
        if is_first is None and self.keeps_state and self._num_begun not in (0, rows.num):
            raise SchemaError(
                f"act() was given {rows.num} observations after {self._num_begun}, and this agent remembers the "
                "episodes of its rows: call reset() before another number of rows, or mark which begin: act(obs, "
                "is_first=[...])."
            )
        first: Array = np.arange(rows.num) >= self._num_begun
        if is_first is not None:
            given = np.asarray(is_first)
            if given.dtype != bool or given.shape not in ((), (rows.num,)):
                raise SchemaError(
                    f"is_first is {is_first!r}, expected True or False, or one of these for each of {rows.num} rows."
                )
            first = first | given
        self._num_begun = rows.num
        return first

    def __repr__(self) -> str:
        at = "" if self.version.env_step is None else f", env step {self.version.env_step:,}"
        return (
            f"Agent({self.description.policy_name} on {self.description.env_name}, {self.version.path.name}{at}, "
            f"observes {self.observation_space}, acts {self.action_space})"
        )


def _rewards(given: float | Array | Sequence[float], number: int) -> Array:
    """Return rewards [R] of so many rows. Raises SchemaError for another number of them."""
    rewards = np.array(given, np.float32, ndmin=1)
    if rewards.shape != (number,):
        raise SchemaError(f"reward is {given!r}, expected one number for each of {number} rows.")
    return rewards


def load(
    path: str | Path,
    *,
    which: str | Path = "best",
    device: str | torch.device | None = None,
    model: torch.nn.Module | None = None,
    seed: int = 0,
    import_names: Sequence[str] = (),
) -> Agent:
    """Return the agent of a run: `path` is its folder, or a checkpoint inside one. Nothing in the folder runs.

    Neither the env nor the config is needed. `which` is "best", "last" or a checkpoint's file. `device` is by default a
    GPU if the run trained on one and there is one, else the CPU. `model` is for runs that were given a model as an
    object. `seed` is of actions that are sampled. `import_names` are modules with classes of your own that the folder
    may name; those that are imported already need not be listed. Raises ConfigError for a folder that is no run's and
    for code that it names and that is not allowed, CheckpointError where there are no weights.
    """
    folder = run_folder(path)
    description = read_description(folder, import_names=import_names)
    checkpoint = Path(path) if Path(path).is_file() else find_checkpoint(folder, which)
    agent = Agent(description, checkpoint, device=device, model=model, seed=seed)
    if agent.client_wrappers:
        logger.info(
            "%s: %s need the env itself: give the agent what agent.wrap(env) observes",
            folder,
            ", ".join(agent.client_wrappers),
        )
    return agent
